"""Interleaved rounds: A, B, C, A, B, C, ..., each run in a process and a folder of its own."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bench.contender import Case, Contender, Order, Outcome

ROOT = Path(__file__).resolve().parent.parent
LONGEST_RUN_SECONDS = 900


@dataclass(frozen=True, slots=True)
class Entry:
    """A case on the start list."""

    module: str
    contender: Contender
    case: Case

    @property
    def key(self) -> str:
        return self.contender.key(self.case)

    def matches(self, only: Sequence[str]) -> bool:
        return not only or any(word in (self.key, self.contender.name, self.case.benchmark) for word in only)


@dataclass(frozen=True, slots=True)
class Failure:
    reason: str


def run_once(entry: Entry, jobs: int) -> Outcome | Failure:
    with tempfile.TemporaryDirectory(prefix="jobyard-bench-") as temporary:
        order = Order(jobs, Path(temporary) / "work")
        order.folder.mkdir()
        answer = Path(temporary) / "outcome.json"
        command = [
            sys.executable,
            "-m",
            "bench.one",
            entry.module,
            entry.case.name,
            str(jobs),
            str(order.folder),
            str(answer),
        ]
        try:
            done = subprocess.run(
                command, cwd=ROOT, capture_output=True, text=True, timeout=LONGEST_RUN_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            return Failure(f"not done after {LONGEST_RUN_SECONDS} s")
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
            return Failure(lines[-1])
        return msgspec.json.decode(answer.read_bytes(), type=Outcome)


def run_rounds(
    entries: Sequence[Entry], base_jobs: int, runs: int, announce: Callable[[int, Entry], None]
) -> dict[str, list[Outcome] | Failure]:
    """All outcomes by key, in order of rounds; an entry that failed once is not run again."""
    results: dict[str, list[Outcome] | Failure] = {entry.key: [] for entry in entries}
    for number in range(1, runs + 1):
        for entry in entries:
            announce(number, entry)
            so_far = results[entry.key]
            if isinstance(so_far, Failure):
                continue
            match run_once(entry, entry.case.jobs(base_jobs)):
                case Failure() as failure:
                    results[entry.key] = failure
                case outcome:
                    so_far.append(outcome)
    return results
