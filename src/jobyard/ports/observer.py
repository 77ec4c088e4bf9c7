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
