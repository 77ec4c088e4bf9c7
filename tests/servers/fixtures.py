"""Fixtures and summary lines for tests on real servers; a plugin of `tests/conftest.py`."""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterator
from typing import NoReturn

import pytest

from tests.servers import shared
from tests.servers.absent import Absent
from tests.servers.clean import clean
from tests.servers.schema import close_connections

STORE_NAMES = ("memory", "sqlite", "redis", "postgres", "pgbouncer", "sharded")
PARAMETER = re.compile(r"\[(?:[^\]]*-)?(" + "|".join(STORE_NAMES) + r")(?:-[^\]]*)?\]$")
COUNTED = ("passed", "failed", "error", "skipped", "xfailed")


def wanted(url: Callable[[], str]) -> str:
    """The URL of a shared server. Without one: a failure where CI runs, a skip elsewhere."""
    try:
        return url()
    except Absent as error:
        absent(error)


def absent(error: Absent) -> NoReturn:
    shared.missing[error.program] = str(error)
    if os.environ.get("CI"):
        pytest.fail(str(error), pytrace=False)
    pytest.skip(str(error))


@pytest.fixture(scope="session")
def redis_url() -> str:
    return wanted(shared.redis_url)


@pytest.fixture(scope="session")
def postgres_url() -> str:
    return wanted(shared.postgres_url)


@pytest.fixture(scope="session")
def pgbouncer_url() -> str:
    return wanted(shared.pgbouncer_url)


@pytest.fixture(scope="session", autouse=True)
def _servers() -> Iterator[None]:
    """Stopped when the tests have ended; `guarded.py` sees to it when they are killed."""
    yield
    close_connections()
    clean()
    shared.stop_all()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Generator[None, None, None]:
    """After everything else that is summed up: here a line is seen."""
    yield
    counts = conformance_counts(terminalreporter)
    if counts:
        terminalreporter.write_line("conformance: " + "; ".join(counts), bold=True)
    for message in shared.missing.values():
        terminalreporter.write_line(f"NOT TESTED: {message}", red=True, bold=True)


def conformance_counts(reporter: pytest.TerminalReporter) -> list[str]:
    """How many tests of the suite each store passed, and what became of the others."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for outcome in COUNTED:
        for report in reporter.stats.get(outcome, []):
            found = PARAMETER.search(report.nodeid)
            if found and "conformance/" in report.nodeid:
                counts[found[1]][outcome] += 1
    return [
        f"{name} " + ", ".join(f"{counts[name][outcome]} {outcome}" for outcome in COUNTED if counts[name][outcome])
        for name in STORE_NAMES
        if name in counts
    ]
