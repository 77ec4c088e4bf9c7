"""Table of all routes of the server, one entry per route module."""

from __future__ import annotations

from jobyard.server.routes import (
    audit,
    bulk,
    dead_letters,
    docs,
    events,
    execute,
    groups,
    health,
    job_actions,
    jobs,
    kinds,
    login,
    program_output,
    queues,
    schedules,
    submit,
    tokens,
    workers,
)

ALL_ROUTES = (
    submit.ROUTES,
    jobs.ROUTES,
    job_actions.ROUTES,
    bulk.ROUTES,
    dead_letters.ROUTES,
    queues.ROUTES,
    groups.ROUTES,
    schedules.ROUTES,
    workers.ROUTES,
    kinds.ROUTES,
    execute.ROUTES,
    docs.ROUTES,
    tokens.ROUTES,
    audit.ROUTES,
    login.ROUTES,
    events.ROUTES,
    program_output.ROUTES,
    health.ROUTES,
)
