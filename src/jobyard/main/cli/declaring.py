"""Schedules that the application and the configuration declare, written when a service starts."""

from __future__ import annotations

from jobyard.errors import ConfigurationError
from jobyard.main.cli.session import Session
from jobyard.main.scheduling import declare_all
from jobyard.main.yard import Jobyard


async def declare_schedules(session: Session, yard: Jobyard, *, is_whole: bool = False) -> None:
    """`is_whole`: a file that names no schedule has none any more."""
    told, shortest = session.configuration.schedules, session.configuration.scheduler.shortest_interval_seconds
    has_file = session.found.file is not None
    await declare_all(yard, session.app_name, told, shortest, is_whole=is_whole and has_file)


def require_shared(yard: Jobyard) -> None:
    if yard.store.url.startswith("memory:"):
        raise ConfigurationError(
            "memory:// lives in one process, and workers are others. Name a store that they share: "
            "--store sqlite:///jobs.db"
        )
