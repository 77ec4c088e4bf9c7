"""The routes of the API, all in one list."""

from __future__ import annotations

from jobyard.server.routes import bulk, docs, execute, groups, jobs, kinds, queues, schedules, workers
from jobyard.server.routes import dead_letters as dead
from jobyard.server.routes import job_actions as changes
from jobyard.server.routes import submit as submitting

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
