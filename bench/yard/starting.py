"""One process per program, as a shell would start it: what the sandbox is compared with."""

from __future__ import annotations

import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from statistics import median

from bench.contender import Outcome

PROGRAM = "print(1)"
BARE = ("/usr/bin/python3", "-I", "-S", "-c", PROGRAM)
BUBBLEWRAP = (
    "bwrap", "--unshare-all", "--die-with-parent", "--new-session",
    "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib",
    "--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--", *BARE,
)  # fmt: skip
WARM_UP = 5


class Times:
    """Seconds in, milliseconds out."""

    def __init__(self) -> None:
        self._first: list[float] = []
        self._ended: list[float] = []

    def add(self, first: float, ended: float) -> None:
        self._first.append(first * 1000)
        self._ended.append(ended * 1000)

    def figures(self) -> dict[str, float]:
        first = sorted(self._first)
        return {
            "p50_ms": median(first),
            "p99_ms": first[len(first) * 99 // 100],
            "finished_p50_ms": median(self._ended),
        }


def run(words: tuple[str, ...]) -> tuple[float, float]:
    """Seconds to the first byte, and to the end."""
    began = time.perf_counter()
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, bufsize=0) as process:
        assert process.stdout is not None
        data = process.stdout.read(1)
        first = time.perf_counter() - began
        assert data + process.stdout.read() == b"1\n"
        assert process.wait() == 0
    return first, time.perf_counter() - began


def start(words: tuple[str, ...], runs: int) -> Outcome:
    for _ in range(WARM_UP):
        run(words)
    times = Times()
    for _ in range(runs):
        times.add(*run(words))
    return Outcome(times.figures())


def sustained(words: tuple[str, ...], runs: int, at_once: int) -> Outcome:
    began = time.perf_counter()
    with ThreadPoolExecutor(at_once) as pool:
        for _ in pool.map(run, [words] * runs):
            pass
    return Outcome({"jobs_per_second": runs / (time.perf_counter() - began)})
