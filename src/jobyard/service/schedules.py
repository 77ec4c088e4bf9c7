"""Definitions of schedules: written, armed, told to the schedulers; declared ones are told apart from managed ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from jobyard.domain.instant import Instant
from jobyard.domain.job import State
from jobyard.domain.schedule import Schedule, Verdict
from jobyard.ports.store import Store

COLLECTION = "jobyard.schedules"
LOG = "jobyard.schedules"
SHORTEST_INTERVAL_SECONDS = 10.0


class Past(msgspec.Struct, frozen=True, kw_only=True):
    """One row of a schedule's history."""

    at: Instant
    verdict: Verdict
    job_id: str | None
    state: State | None  # its job's; None when there is none, or it is gone
    is_pruned: bool = False  # its job was removed meanwhile
    first: Instant  # of `count` instants in a row that were missed
    count: int
    decided_at: Instant


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """What came of declaring schedules."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()  # declared here before and no longer: they stay and go on firing
    refused: Mapping[str, str] = {}  # by name: why it was not touched


def definition(words: Mapping[str, Any]) -> Schedule:
    """A schedule from what a person wrote: fields of Schedule by name, `payload` as a value; refuses what cannot be."""
    raise NotImplementedError


class Schedules:
    def __init__(self, store: Store, shortest_interval_seconds: float = SHORTEST_INTERVAL_SECONDS) -> None:
        self._store = store
        self._shortest = shortest_interval_seconds

    async def all(self) -> list[Schedule]:
        """All of them, by name."""
        raise NotImplementedError

    async def get(self, name: str) -> Schedule:
        """Raises NotFound."""
        raise NotImplementedError

    async def add(self, schedule: Schedule) -> Schedule:
        """As it is stored now. Raises BadOption for what cannot be, NotPossible when the name is taken."""
        raise NotImplementedError

    async def edit(self, name: str, changes: Mapping[str, Any]) -> Schedule:
        """`changes` are words of `definition` without name. Raises NotPossible for a declared one: edit that place."""
        raise NotImplementedError

    async def pause(self, name: str) -> Schedule:
        raise NotImplementedError

    async def resume(self, name: str) -> Schedule:
        """Instants of the time when it was paused were not due."""
        raise NotImplementedError

    async def remove(self, name: str) -> Schedule:
        """What it was. Raises NotPossible while it is declared elsewhere."""
        raise NotImplementedError

    async def run(self, name: str) -> str:
        """Insert its job now, beside the clock; answers the job's id."""
        raise NotImplementedError

    async def next(self, name: str, count: int = 5) -> list[Instant]:
        """Its next instants by the store's clock; none while it is paused or after its end."""
        raise NotImplementedError

    async def history(self, name: str, limit: int = 50, before: Instant | None = None) -> list[Past]:
        """What became of its instants, newest first."""
        raise NotImplementedError

    async def declare(self, origin: str, schedules: Sequence[Schedule]) -> Declared:
        """These, and no others, are declared at `origin` ("file" or "code:<app>"). A pause by an operator survives."""
        raise NotImplementedError
