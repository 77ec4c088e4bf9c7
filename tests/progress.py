"""A pytest plugin that appends each finished test to a file, for `tests.run` to follow."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import IO, Literal

import msgspec
import pytest

PROGRESS_VARIABLE = "TEST_PROGRESS_FILE"  # not JOBYARD_…: commands warn about unknown ones
_REPORTS = pytest.StashKey[list[pytest.TestReport]]()


class Collected(msgspec.Struct, frozen=True, tag=True):
    count: int


class Finished(msgspec.Struct, frozen=True, tag=True):
    test: str
    outcome: Literal["passed", "failed", "skipped"]
    seconds: float


def decode(lines: IO[bytes]) -> Iterator[Collected | Finished]:
    """The events written since the last call; a line that is still being written is left for the next."""
    while True:
        start = lines.tell()
        line = lines.readline()
        if not line.endswith(b"\n"):
            lines.seek(start)
            return
        yield msgspec.json.decode(line, type=Collected | Finished)


def _write(event: Collected | Finished) -> None:
    path = os.environ.get(PROGRESS_VARIABLE)
    if path:
        with Path(path).open("ab") as file:
            file.write(msgspec.json.encode(event) + b"\n")


def pytest_collection_finish(session: pytest.Session) -> None:
    _write(Collected(len(session.items)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """One event per test: failed when setup, call or teardown failed."""
    item.stash[_REPORTS] = []
    result = yield
    reports = item.stash[_REPORTS]
    outcome: Literal["passed", "failed", "skipped"] = "passed"
    if any(report.failed for report in reports):
        outcome = "failed"
    elif any(report.skipped for report in reports):
        outcome = "skipped"
    _write(Finished(item.nodeid, outcome, sum(report.duration for report in reports)))
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash[_REPORTS].append(report)
    return report
