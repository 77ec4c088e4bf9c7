"""Who is told what happened."""

from __future__ import annotations

from typing import Protocol

from jobyard.domain.events import Event


class Observer(Protocol):
    @property
    def wants_each_job(self) -> bool:
        """Whether it wants to be told of every start and every good end; else only of what went wrong."""
        ...

    def observe(self, event: Event) -> None:
        """Must be quick and must not raise; called from any thread."""
        ...


class Companion(Protocol):
    """Runs beside a worker, in its event loop: from before the first claim until after the last settlement."""

    async def start(self) -> None: ...

    async def stop(self) -> None:
        """Must not take long, nor raise; safe twice."""
        ...
