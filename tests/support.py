"""Short words for tests that wait, watch and look into stores."""

from __future__ import annotations

import asyncio
import inspect
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from jobyard import Jobyard
from jobyard.domain.events import Event
from jobyard.ports.store import Store

ROOT = Path(__file__).parents[1]
E_ = TypeVar("E_")
# Everything waits on a condition; this only bounds how long a broken one is waited for.
PATIENCE_SECONDS = 60.0


def pauses(first: float = 0.005, most: float = 0.1) -> Iterator[float]:
    """Seconds between two looks at a condition: a fifth of the wait so far, since each look takes processor time."""
    pause = first
    while True:
        yield pause
        pause = min(most, pause * 1.2)


async def eventually(predicate: Callable[[], Any | Awaitable[Any]], timeout: float = PATIENCE_SECONDS) -> Any:
    """The predicate's first true answer; fails after the time."""
    deadline = time.monotonic() + timeout
    pause = pauses()
    while True:
        response = predicate()
        if inspect.isawaitable(response):
            response = await response
        if response:
            return response
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout:g} s: {inspect.getsource(predicate).strip()}")
        await asyncio.sleep(next(pause))


Make = Callable[..., Jobyard]


class Events:
    """An observer that keeps all events."""

    def __init__(self) -> None:
        self._all: list[Event] = []
        self._lock = threading.Lock()

    wants_each_job = True

    def observe(self, event: Event) -> None:
        with self._lock:
            self._all.append(event)

    def of(self, kind: type[E_]) -> list[E_]:
        with self._lock:
            return [event for event in self._all if isinstance(event, kind)]


class Watched:
    """A store that counts its calls, keeps its exchanges, and fails on demand; handles for other loops share this."""

    def __init__(self, store: Store, first: Watched | None = None) -> None:
        self._store = store
        self._first = first or self
        self.calls: Counter[str] = Counter()
        self.exchanges: list[tuple[int, int, int]] = []  # settled, wanted, claimed
        self.failing: Exception | None = None
        self.failing_verbs: tuple[str, ...] = ()

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._store, name)
        if not inspect.iscoroutinefunction(verb):
            return verb

        async def watched(*args: Any, **kwargs: Any) -> Any:
            first = self._first
            first.calls[name] += 1
            if name == "put":
                first.calls[f"put {args[0]}"] += 1
            fails = name != "close" and (not first.failing_verbs or name in first.failing_verbs)
            if first.failing is not None and fails:
                raise first.failing
            response = await verb(*args, **kwargs)
            if name == "exchange":
                first.exchanges.append((len(args[1]), args[3], len(response.leases)))
            return response

        return watched

    def for_event_loop(self) -> Store:
        handle = self._store.for_event_loop()
        return self.as_store() if handle is self._store else Watched(handle, self._first).as_store()

    def as_store(self) -> Store:
        return cast(Store, self)


def python(*args: str, cwd: Path, timeout: float = 120.0) -> subprocess.CompletedProcess[str]:
    """A Python of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(
        [sys.executable, *args], cwd=cwd, env=environment, capture_output=True, text=True, timeout=timeout, check=False
    )


def mypy(path: Path) -> str:
    """What mypy --strict says of a file."""
    response = python(
        "-m", "mypy", "--strict", "--cache-dir", "/tmp/jobyard-tests-mypy", "--no-error-summary", str(path),
        cwd=path.parent, timeout=280,
    )  # fmt: skip
    return response.stdout + response.stderr


def subcommands(group: click.Group) -> dict[str, click.Command]:
    """The commands of a group by name; those of the root are loaded when they are asked for."""
    context = click.Context(group)
    found = {name: group.get_command(context, name) for name in group.list_commands(context)}
    return {name: command for name, command in found.items() if command is not None}
