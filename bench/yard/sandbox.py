"""Programs through the sandbox's daemon, alone: to the first byte, to the end, and without a pause."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import StatisticsError, median

import msgspec

from bench.contender import Outcome
from bench.yard.starting import PROGRAM, Times
from jobyard.sandbox.attacks.connection import connect
from jobyard.sandbox.attacks.leaks import descendants
from jobyard.sandbox.attacks.private_daemon import DaemonStartFailed, private_daemon
from jobyard.sandbox.protocol import (
    DaemonMessage,
    FrameDecoder,
    Output,
    RunFinished,
    RunRequest,
    RunVerdict,
    SandboxState,
    encode_frame,
)

PAUSE_SECONDS = 0.015  # the pool is full again: what is measured is a run, not its refilling
WARM_UP = 20
_decoder: msgspec.msgpack.Decoder[DaemonMessage] = msgspec.msgpack.Decoder(DaemonMessage)


async def best_tier() -> str:
    """What this machine offers, for the heading."""
    try:
        async with private_daemon() as own, connect(own.socket) as connection:
            state = await connection.ready()
    except DaemonStartFailed as error:
        return str(error)
    return f"tier {state.tier}" if state.tier else f"refused: {state.reason}"


class Line:
    """A connection that waits for one answer at a time, with nothing of asyncio between."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(os.fspath(path))
        self._frames = FrameDecoder()
        self._ready: list[bytes] = []
        self.state = self._ready_state()

    def next(self) -> DaemonMessage:
        while not self._ready:
            data = self._socket.recv(1 << 16)
            assert data, "the daemon closed the connection"
            self._ready += self._frames.feed(data)
        return _decoder.decode(self._ready.pop(0))

    def run(self, request: bytes) -> tuple[float, float]:
        """Seconds to the first byte, and to the end."""
        began = time.perf_counter()
        self._socket.sendall(request)
        first = 0.0
        while not isinstance(answer := self.next(), RunFinished):
            assert isinstance(answer, Output), answer
            first = first or time.perf_counter() - began
        ended = time.perf_counter() - began
        assert (answer.verdict, answer.stdout) == (RunVerdict.OK, b"1\n"), answer
        return first, ended

    def run_all(self, runs: int, at_once: int) -> None:
        """So many, with so many always on their way; whoever counts them takes next to nothing of the machine."""
        requests = (
            encode_frame(RunRequest(id=number, language="python", source=PROGRAM.encode()))
            for number in range(1, runs + 1)
        )
        for request in itertools.islice(requests, at_once):
            self._socket.sendall(request)
        for _ in range(runs):
            answer = self.next()
            assert isinstance(answer, RunFinished), answer
            assert (answer.verdict, answer.stdout) == (RunVerdict.OK, b"1\n"), answer
            if request := next(requests, b""):
                self._socket.sendall(request)

    def close(self) -> None:
        self._socket.close()

    def _ready_state(self) -> SandboxState:
        state = self.next()
        assert isinstance(state, SandboxState), state
        assert state.tier is not None, state.reason
        return state


@contextmanager
def line(*, pool: int | None = None, slots: int | None = None) -> Iterator[tuple[Line, int]]:
    """A daemon of its own and a line to it; its process number."""
    loop = asyncio.new_event_loop()
    daemon = private_daemon(pool=pool, slots=slots)
    own = loop.run_until_complete(daemon.__aenter__())
    try:
        loop.run_until_complete(_until_ready(own.socket))
        made = Line(own.socket)
        yield made, own.process.pid
        made.close()
    finally:
        loop.run_until_complete(daemon.__aexit__(None, None, None))
        loop.close()


async def _until_ready(path: Path) -> None:
    async with connect(path) as connection:
        await connection.ready()


def start(runs: int, *, pool: int | None) -> Outcome:
    request = encode_frame(RunRequest(id=1, language="python", source=PROGRAM.encode(), stream=True))
    times = Times()
    with line(pool=pool) as (daemon, pid):
        for _ in range(WARM_UP):
            daemon.run(request)
        for _ in range(runs):
            time.sleep(PAUSE_SECONDS)
            times.add(*daemon.run(request))
        time.sleep(1)  # the pool is full and at rest
        member_mb = _member_mb(pid) if pool is None else 0.0
    return Outcome({**times.figures(), **({"member_mb": member_mb} if member_mb else {})})


def sustained(runs: int, at_once: int) -> Outcome:
    """As many at once as there are slots, without a pause: the pool empties and is refilled meanwhile."""
    with line(slots=at_once) as (daemon, _):
        began = time.perf_counter()
        daemon.run_all(runs, at_once)
        return Outcome({"jobs_per_second": runs / (time.perf_counter() - began)})


def _member_mb(daemon: int) -> float:
    """What an idle Python member takes, shared pages divided among those who share them; 0 where nobody may look.

    Members are below the zygote, alone or with an init of their own; a larger family is no member.
    """
    try:
        parents = {pid: _parent(pid) for pid in descendants(daemon)}
        keeper = next(pid for pid, parent in parents.items() if parent == daemon)
        zygote = next(pid for pid, parent in parents.items() if parent == keeper)
        families = [
            [pid, *(child for child, parent in parents.items() if parent == pid)]
            for pid, parent in parents.items()
            if parent == zygote
        ]
        members = [family for family in families if len(family) <= 2 and all(_is_python(pid) for pid in family)]
        return median(sum(_proportional_kb(pid) for pid in family) for family in members) / 1024
    except (OSError, StopIteration, StatisticsError):
        return 0.0


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _is_python(pid: int) -> bool:
    return "python" in Path(f"/proc/{pid}/exe").readlink().name


def _proportional_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
