"""Interleaved rounds: A, B, C, A, B, C, ..., each run in a process, a folder and a database of its own."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bench.contender import Case, Contender, Outcome
from bench.servers import Servers

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
        """By engine, contender, benchmark or row; the last with its engine or without."""
        row = f"{self.contender.name}/{self.case.name}"
        names = (self.key, row, self.contender.name, self.case.benchmark, self.contender.engine)
        return not only or any(word in names for word in only)

    def is_in(self, round_number: int) -> bool:
        return self.case.rounds is None or round_number <= self.case.rounds


@dataclass(frozen=True, slots=True)
class Failure:
    reason: str


def run_once(entry: Entry, jobs: int, servers: Servers) -> Outcome | Failure:
    with (
        tempfile.TemporaryDirectory(prefix="jobyard-bench-") as temporary,
        servers.database(entry.contender.engine) as url,
    ):
        folder = Path(temporary) / "work"
        folder.mkdir()
        answer = Path(temporary) / "outcome.json"
        words = [entry.module, entry.case.name, str(jobs), str(folder), url, str(answer)]
        try:
            done = subprocess.run(
                [sys.executable, "-m", "bench.one", *words],
                cwd=ROOT,
                capture_output=True,
                text=True,
                timeout=LONGEST_RUN_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Failure(f"not done after {LONGEST_RUN_SECONDS} s")
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
            return Failure(lines[-1])
        return msgspec.json.decode(answer.read_bytes(), type=Outcome)


def run_rounds(
    entries: Sequence[Entry], base_jobs: int, runs: int, servers: Servers, announce: Callable[[int, Entry], None]
) -> dict[str, list[Outcome] | Failure]:
    """All outcomes by key, in order of rounds; an entry that failed once is not run again."""
    results: dict[str, list[Outcome] | Failure] = {entry.key: [] for entry in entries}
    for number in range(1, runs + 1):
        for entry in entries:
            announce(number, entry)
            so_far = results[entry.key]
            if isinstance(so_far, Failure) or not entry.is_in(number):
                continue
            match run_once(entry, entry.case.jobs(base_jobs), servers):
                case Failure() as failure:
                    results[entry.key] = failure
                case outcome:
                    so_far.append(outcome)
    return results
