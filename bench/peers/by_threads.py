"""The benchmarks for a peer that blocks: its worker has the main thread, the rest happens beside it."""

from __future__ import annotations

import logging
import os
import threading
import time
import traceback
from abc import ABC, abstractmethod

from bench.peers.common import POLL_SECONDS, WARM_UP, Order, Tally, answer, pause


class Peer(ABC):
    """What a script fills in; its handlers report to `tally`."""

    def __init__(self, order: Order, tally: Tally) -> None:
        self.order = order
        self.tally = tally

    @abstractmethod
    def enqueue(self, sent: int | None) -> None:
        """One job: the no-op for None, else the one that carries the time it was sent."""

    def insert(self, jobs: int) -> None:
        """By the peer's own bulk call, if it has one; this one only serves to fill."""
        for _ in range(jobs):
            self.enqueue(None)

    @abstractmethod
    def work(self) -> None:
        """Run the worker; it is never stopped."""

    @abstractmethod
    def unsettled(self) -> int:
        """Jobs not yet acknowledged, as the server has it."""


def _produce(peer: Peer, order: Order) -> dict[str, float]:
    if order.action == "fill":
        peer.insert(order.jobs)
        return {}
    for _ in range(WARM_UP):
        peer.enqueue(None)
    started = time.perf_counter()
    if order.action == "insert":
        peer.insert(order.jobs)
    else:
        for _ in range(order.jobs):
            peer.enqueue(None)
    return {"jobs_per_second": order.jobs / (time.perf_counter() - started)}


def _consume(peer: Peer, order: Order, finished: threading.Event) -> dict[str, float]:
    if order.action == "latency":
        for number in range(peer.tally.expected):
            time.sleep(pause())
            peer.enqueue(0 if number < WARM_UP else time.monotonic_ns())
        finished.wait()
        return peer.tally.latency()
    finished.wait()
    while peer.unsettled():
        time.sleep(POLL_SECONDS)
    return {"jobs_per_second": peer.tally.rate()}


def main(kind: type[Peer]) -> None:
    logging.disable(logging.CRITICAL)
    order = Order.read()
    finished = threading.Event()
    expected = order.jobs + WARM_UP if order.action == "latency" else order.jobs
    peer = kind(order, Tally(expected, finished.set))
    if order.action not in {"drain", "latency"}:
        answer(_produce(peer, order))

    def beside() -> None:
        try:
            answer(_consume(peer, order, finished))
        except BaseException:
            traceback.print_exc()
            os._exit(1)  # the worker in the main thread would go on forever

    threading.Thread(target=beside, daemon=True).start()
    peer.work()
