"""The application that `jobyard --app tests.story.worker:yard worker` runs: our handlers, our name, and a recorder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.story.marks import Marks
from tests.story.process import begin

from jobyard import Jobyard
from jobyard.worker.worker import Worker

orders, yard = begin()


def name_and_mark(declared: Jobyard) -> None:
    """Stories know their workers by name, and see when one begins to stop."""
    make = declared.worker

    def worker(**options: Any) -> Worker:
        made = make(**options, name=orders.name)
        stop = made.stop

        async def stop_and_tell(timeout_seconds: float | None = None) -> None:
            Marks(Path(orders.marks)).put(f"stopping-{orders.name}")
            await stop(timeout_seconds)

        made.stop = stop_and_tell  # type: ignore[method-assign]
        return made

    declared.worker = worker  # type: ignore[method-assign]


name_and_mark(yard)
