"""Every store, by name, with the few lines that hand it to the suite."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from jobyard.ports.store import Store
from jobyard.testing.clock import ManualClock

# Imported late: a store that cannot be imported must not take the others along.


def memory(folder: Path, clock: ManualClock) -> Store:
    from jobyard.stores.memory import MemoryStore  # noqa: PLC0415

    return MemoryStore(clock)


def sqlite(folder: Path, clock: ManualClock) -> Store:
    from jobyard.stores.sqlite import SqliteStore  # noqa: PLC0415

    return SqliteStore(folder / "jobs.db", clock=clock)


STORES: dict[str, Callable[[Path, ManualClock], Store]] = {"memory": memory, "sqlite": sqlite}
