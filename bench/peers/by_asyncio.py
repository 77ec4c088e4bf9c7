"""The benchmarks for a peer that lives in an event loop."""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod

from bench.peers.common import POLL_SECONDS, WARM_UP, Order, Tally, answer, pause

FILLERS = 50


class Peer(ABC):
    """What a script fills in; its handlers report to `tally`."""

    def __init__(self, order: Order, tally: Tally) -> None:
        self.order = order
        self.tally = tally

    @abstractmethod
    async def open(self) -> None: ...

    @abstractmethod
    async def enqueue(self, sent: int | None) -> None:
        """One job: the no-op for None, else the one that carries the time it was sent."""

    async def insert(self, jobs: int) -> None:
        """By the peer's own bulk call, if it has one; this one only serves to fill."""
        await _in_parallel(self, jobs, FILLERS)

    @abstractmethod
    async def work(self) -> None:
        """Start the worker; it is never stopped."""

    @abstractmethod
    async def unsettled(self) -> int:
        """Jobs not yet acknowledged, as the server has it."""


async def _in_parallel(peer: Peer, jobs: int, callers: int) -> None:
    async def call(share: int) -> None:
        for _ in range(share):
            await peer.enqueue(None)

    await asyncio.gather(*(call(jobs // callers + (number < jobs % callers)) for number in range(callers)))


async def _measure(kind: type[Peer], order: Order) -> dict[str, float]:
    finished = asyncio.Event()
    expected = order.jobs + WARM_UP if order.action == "latency" else order.jobs
    peer = kind(order, Tally(expected, finished.set))
    await peer.open()
    match order.action:
        case "fill":
            await peer.insert(order.jobs)
            return {}
        case "insert" | "enqueue":
            await _in_parallel(peer, WARM_UP, 1)
            started = time.perf_counter()
            if order.action == "insert":
                await peer.insert(order.jobs)
            else:
                await _in_parallel(peer, order.jobs, order.setting("callers", 1))
            return {"jobs_per_second": order.jobs / (time.perf_counter() - started)}
        case "drain":
            await peer.work()
            await finished.wait()
            while await peer.unsettled():  # noqa: ASYNC110 - the server's counts send no signal
                await asyncio.sleep(POLL_SECONDS)
            return {"jobs_per_second": peer.tally.rate()}
        case "latency":
            await peer.work()
            for number in range(expected):
                await asyncio.sleep(pause())
                await peer.enqueue(0 if number < WARM_UP else time.monotonic_ns())
            await finished.wait()
            return peer.tally.latency()
        case unknown:
            raise ValueError(f"no such action: {unknown}")


async def _answer(kind: type[Peer]) -> None:
    answer(await _measure(kind, Order.read()))


def main(kind: type[Peer]) -> None:
    import uvloop  # noqa: PLC0415 - every asyncio peer gets it, as jobyard does

    logging.disable(logging.CRITICAL)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_answer(kind))
