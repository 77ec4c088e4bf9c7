"""The application that `jobyard --app tests.story.worker:yard worker` runs: our handlers, our name, and a recorder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.story.flags import Flags
from tests.story.process import begin

from jobyard import Jobyard
from jobyard.stores._shared import polling_claim
from jobyard.stores.postgres import notifier
from jobyard.worker import claimer
from jobyard.worker.worker import Worker

settings, yard = begin()
if not settings.polls:
    claimer.CLAIM_AGAIN_SECONDS = polling_claim.POLL_SECONDS = notifier.LISTENER_POLL_SECONDS = 3600.0


def name_and_mark(declared: Jobyard) -> None:
    """Stories know their workers by name, and see when one begins to stop."""
    make = declared.worker

    def worker(**options: Any) -> Worker:
        made = make(**options, name=settings.name)
        stop = made.stop

        async def stop_and_tell(timeout_seconds: float | None = None) -> None:
            Flags(Path(settings.flags)).put(f"stopping-{settings.name}")
            await stop(timeout_seconds)

        made.stop = stop_and_tell  # type: ignore[method-assign]
        return made

    declared.worker = worker  # type: ignore[method-assign]


name_and_mark(yard)
