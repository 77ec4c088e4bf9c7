"""Who is told what happened."""

from __future__ import annotations

from typing import Protocol

from jobyard.domain.events import Event


class Observer(Protocol):
    def observe(self, event: Event) -> None:
        """Must be quick and must not raise; called from any thread."""
        ...
