"""The observer port: receives the events of workers and schedulers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from jobyard.domain.events import Event

Emit = Callable[[Event], None]


class Observer(Protocol):
    @property
    def wants_each_job(self) -> bool:
        """Whether it wants an event for every start and every good end, or only for failures."""

    def observe(self, event: Event) -> None:
        """Must be fast and must not raise. Called from any thread."""


class WorkerService(Protocol):
    """Runs beside a worker, in its event loop: from before the first claim until after the last settlement."""

    async def start(self) -> None: ...

    async def stop(self) -> None:
        """Must be fast and must not raise; safe twice."""
