"""The routes of the API, all in one list."""

from __future__ import annotations

from jobyard.doors.http import (
    bulk,
    changes,
    dead,
    docs,
    execute,
    groups,
    jobs,
    kinds,
    queues,
    schedules,
    submitting,
    workers,
)

API = (
    submitting.ROUTES,
    jobs.ROUTES,
    changes.ROUTES,
    bulk.ROUTES,
    dead.ROUTES,
    queues.ROUTES,
    groups.ROUTES,
    schedules.ROUTES,
    workers.ROUTES,
    kinds.ROUTES,
    execute.ROUTES,
    docs.ROUTES,
)
