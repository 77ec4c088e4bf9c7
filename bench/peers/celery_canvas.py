"""Celery's canvas on Redis: chains, groups and chords, with results in the same Redis."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict

from celery import Celery, chain, chord, group

from bench.peers.common import Order, answer

LINKS = 10
WARM_UP = 3
TIMEOUT_SECONDS = 250
POOLS = ("prefork", "solo", "threads")

order = Order.read()
app = Celery("bench", broker=order.url, backend=order.url)
app.conf.update(
    task_acks_late=True,
    worker_prefetch_multiplier=order.setting("prefetch", 10),
    worker_send_task_events=False,
    worker_hijack_root_logger=False,
    worker_redirect_stdouts=False,
    broker_connection_retry_on_startup=True,
    result_chord_join_timeout=TIMEOUT_SECONDS,
)


@app.task(name="child")
def child(value: object = None) -> int:
    return 1


def chains(count: int) -> None:
    links = [chain(child.s(), *(child.s() for _ in range(LINKS - 1))) for _ in range(count // LINKS)]
    results = [link.apply_async() for link in links]
    assert sum(result.get(timeout=TIMEOUT_SECONDS) for result in results) == len(links)


def a_group(count: int) -> None:
    assert sum(group(child.s() for _ in range(count)).apply_async().get(timeout=TIMEOUT_SECONDS)) == count


def a_chord(count: int) -> None:
    assert chord((child.s() for _ in range(count)), child.s()).apply_async().get(timeout=TIMEOUT_SECONDS) == 1


CANVAS: dict[str, Callable[[int], None]] = {"chains": chains, "group": a_group, "chord": a_chord}


def measure() -> dict[str, float]:
    compose = CANVAS[order.action]
    compose(WARM_UP * LINKS)
    started = time.perf_counter()
    compose(order.jobs)
    return {"jobs_per_second": order.jobs / (time.perf_counter() - started)}


def work() -> None:
    """The worker, in a process of its own: results must not be awaited in one that runs tasks."""
    app.Worker(
        pool=POOLS[order.setting("pool", 0)],
        concurrency=order.setting("concurrency", 2),
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
        loglevel="CRITICAL",
        quiet=True,
    ).start()


def main() -> None:
    logging.disable(logging.CRITICAL)
    if order.action == "work":
        work()
        return
    words = [sys.executable, "-m", "bench.peers.celery_canvas", json.dumps({**asdict(order), "action": "work"})]
    worker = subprocess.Popen(words, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        figures = measure()
    finally:
        os.killpg(worker.pid, signal.SIGKILL)  # with the processes that it has forked
        worker.wait()
    answer(figures)


if __name__ == "__main__":
    main()
