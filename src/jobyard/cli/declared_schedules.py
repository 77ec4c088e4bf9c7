"""Schedules that the application and the configuration declare, written when a scheduler starts."""

from __future__ import annotations

from jobyard.app.jobyard import Jobyard
from jobyard.app.scheduling import declare_all
from jobyard.cli.session import Session
from jobyard.errors import ConfigurationError


async def declare_schedules(session: Session, yard: Jobyard) -> None:
    """By whoever fires them, and nobody else: a worker of before that starts again must not set them back."""
    told = (
        session.configuration.schedules if session.found.file is not None or session.configuration.schedules else None
    )
    shortest = session.configuration.scheduler.shortest_interval_seconds
    await declare_all(yard, session.app_name, told, shortest)


def require_shared_store(yard: Jobyard) -> None:
    if yard.store.url.startswith("memory:"):
        raise ConfigurationError(
            "memory:// lives in one process, and workers are others. Name a store that they share: "
            "--store sqlite:///jobs.db"
        )
