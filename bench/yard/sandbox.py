"""The sandbox daemon alone: time to first byte, time to result, and sustained throughput."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import StatisticsError, median

import msgspec

from bench.contender import Outcome
from bench.yard.starting import PROGRAM, Times
from jobyard.sandbox.attacks.attack import Attack
from jobyard.sandbox.attacks.catalogue import ATTACKS
from jobyard.sandbox.attacks.connection import connect
from jobyard.sandbox.attacks.leaks import descendants
from jobyard.sandbox.attacks.private_daemon import DaemonStartFailed, private_daemon
from jobyard.sandbox.protocol import (
    DaemonMessage,
    FrameDecoder,
    Limits,
    Output,
    RunFinished,
    RunRequest,
    RunVerdict,
    SandboxState,
    encode_frame,
)

PAUSE_SECONDS = 0.015  # lets the pool refill: without it, refilling would be measured, too
WARM_UP = 20
NEIGHBOUR_PAUSE_SECONDS = 0.01
NEIGHBOUR_ROUNDS = 5
BOMB_SECONDS = 1.0
UNDER_WAY_SECONDS = 0.5  # until the first bombs take all they can
BOMBS_END = {RunVerdict.TIME_LIMIT, RunVerdict.MEMORY_LIMIT, RunVerdict.CPU_LIMIT, RunVerdict.RUNTIME_ERROR}
_decoder: msgspec.msgpack.Decoder[DaemonMessage] = msgspec.msgpack.Decoder(DaemonMessage)


async def best_tier() -> str:
    """The tier of this machine, for the heading."""
    try:
        async with private_daemon() as private, connect(private.socket) as client:
            state = await client.ready()
    except DaemonStartFailed as error:
        return str(error)
    return f"tier {state.tier}" if state.tier else f"refused: {state.reason}"


class BlockingConnection:
    """A blocking connection: asyncio would add its own latency to the measurement."""

    def __init__(self, path: Path) -> None:
        self.path = path
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
        """Return the seconds to the first byte and to the result."""
        began = time.perf_counter()
        self._socket.sendall(request)
        first = 0.0
        while not isinstance(answer := self.next(), RunFinished):
            assert isinstance(answer, Output), answer
            first = first or time.perf_counter() - began
        ended = time.perf_counter() - began
        assert (answer.verdict, answer.stdout) == (RunVerdict.OK, b"1\n"), answer
        return first, ended

    def run_bomb(self, request: bytes) -> None:
        self._socket.sendall(request)
        answer = self.next()
        assert isinstance(answer, RunFinished), answer
        assert answer.verdict in BOMBS_END, answer

    def run_all(self, runs: int, at_once: int) -> None:
        """Run programs with `at_once` always in flight."""
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
        """The state once every language was checked: the checks of slow compilers would be measured, too."""
        while True:
            state = self.next()
            assert isinstance(state, SandboxState), state
            assert state.tier is not None, state.reason
            if not state.checking:
                return state


@contextmanager
def connection(*, pool: int | None = None, slots: int | None = None) -> Iterator[tuple[BlockingConnection, int]]:
    """Start a private daemon; yield a connection and its pid."""
    loop = asyncio.new_event_loop()
    daemon = private_daemon(pool=pool, slots=slots)
    private = loop.run_until_complete(daemon.__aenter__())
    try:
        made = BlockingConnection(private.socket)
        yield made, private.process.pid
        made.close()
    finally:
        loop.run_until_complete(daemon.__aexit__(None, None, None))
        loop.close()


def start(runs: int, *, pool: int | None, language: str = "python", source: str = PROGRAM) -> Outcome:
    request = encode_frame(RunRequest(id=1, language=language, source=source.encode(), stream=True))
    times = Times()
    with connection(pool=pool) as (daemon, pid):
        for _ in range(WARM_UP):
            daemon.run(request)
        for _ in range(runs):
            time.sleep(PAUSE_SECONDS)
            times.add(*daemon.run(request))
        time.sleep(1)  # until the pool is full: a box that is being spawned would distort the memory figure
        box_mb = _box_mb(pid) if pool is None and language == "python" else 0.0
    return Outcome({**times.figures(), **({"member_mb": box_mb} if box_mb else {})})


def sustained(runs: int, at_once: int) -> Outcome:
    """As many at once as there are slots, without a pause, so the pool is drained and refilled meanwhile."""
    with connection(slots=at_once) as (daemon, _):
        began = time.perf_counter()
        daemon.run_all(runs, at_once)
        return Outcome({"jobs_per_second": runs / (time.perf_counter() - began)})


def beside_bombs(runs: int, numbers: Sequence[int]) -> Outcome:
    """Programs in the last slot, in turns alone and with bombs in all others."""
    slots = (os.cpu_count() or 1) + 1
    request = encode_frame(RunRequest(id=1, language="python", source=PROGRAM.encode(), stream=True))
    bombs = [attack for attack in ATTACKS if attack.number in numbers and isinstance(attack, Attack)]
    times, ratios = Times(), []
    with connection(slots=slots) as (daemon, _), ThreadPoolExecutor(slots - 1) as threads:
        for _ in range(WARM_UP):
            daemon.run(request)
        for _ in range(NEIGHBOUR_ROUNDS):
            alone = _one_by_one(daemon, request, runs // NEIGHBOUR_ROUNDS)
            stop = threading.Event()
            try:
                ended = [threads.submit(_bombard, daemon.path, bombs, place, stop) for place in range(slots - 1)]
                time.sleep(UNDER_WAY_SECONDS)
                beside = _one_by_one(daemon, request, runs // NEIGHBOUR_ROUNDS)
            finally:
                stop.set()
            for thread in ended:
                thread.result()
            for first, end in beside:
                times.add(first, end)
            ratios.append(median(end for _, end in beside) / median(end for _, end in alone))
    return Outcome({**times.figures(), "over_alone": median(ratios)})


def _one_by_one(daemon: BlockingConnection, request: bytes, runs: int) -> list[tuple[float, float]]:
    found = []
    for _ in range(runs):
        time.sleep(NEIGHBOUR_PAUSE_SECONDS)
        found.append(daemon.run(request))
    return found


def _bombard(path: Path, bombs: Sequence[Attack], place: int, stop: threading.Event) -> None:
    daemon = BlockingConnection(path)
    for bomb in itertools.islice(itertools.cycle(bombs), place, None):
        if stop.is_set():
            break
        assert isinstance(bomb.program, str)
        limits = Limits(time_seconds=BOMB_SECONDS)
        source = bomb.program.encode()
        daemon.run_bomb(encode_frame(RunRequest(id=1, language="python", source=source, limits=limits)))
    daemon.close()


def _box_mb(daemon: int) -> float:
    """Proportional memory of an idle Python box; 0 where it cannot be read.

    Boxes are below the zygote, alone or with an init of their own; a larger process tree is not a box.
    """
    try:
        parents = {pid: _parent(pid) for pid in descendants(daemon)}
        reaper = next(pid for pid, parent in parents.items() if parent == daemon)
        zygote = next(pid for pid, parent in parents.items() if parent == reaper)
        trees = [
            [pid, *(child for child, parent in parents.items() if parent == pid)]
            for pid, parent in parents.items()
            if parent == zygote
        ]
        boxes = [tree for tree in trees if len(tree) <= 2 and all(_is_python(pid) for pid in tree)]
        return median(sum(_proportional_kb(pid) for pid in tree) for tree in boxes) / 1024
    except (OSError, StopIteration, StatisticsError):
        return 0.0


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _is_python(pid: int) -> bool:
    return "python" in Path(f"/proc/{pid}/exe").readlink().name


def _proportional_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
