"""Declared schedules (application and configuration), written to the store when a scheduler starts."""

from __future__ import annotations

from jobyard.app.jobyard import Jobyard
from jobyard.app.scheduling import declare_all
from jobyard.cli.session import Session
from jobyard.errors import ConfigurationError


async def declare_schedules(session: Session, yard: Jobyard) -> None:
    """Only by processes that fire schedules: an older worker that restarts must not restore old ones."""
    in_file = (
        session.configuration.schedules if session.found.file is not None or session.configuration.schedules else None
    )
    shortest = session.configuration.scheduler.shortest_interval_seconds
    await declare_all(yard, session.app_name, in_file, shortest)


def require_shared_store(yard: Jobyard) -> None:
    if yard.store.url.startswith("memory:"):
        raise ConfigurationError(
            "Cannot use memory:// with worker processes: it exists in one process only. "
            "Name a store that they share: --store sqlite:///jobs.db"
        )
