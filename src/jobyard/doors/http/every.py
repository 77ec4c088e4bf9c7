"""The routes of the API, all in one list."""

from __future__ import annotations

from jobyard.doors.http import changes, dead, groups, jobs, kinds, queues, workers

# `changes` before `jobs`: a fixed word in a path goes before a name in the same place.
API = (changes.ROUTES, jobs.ROUTES, dead.ROUTES, queues.ROUTES, groups.ROUTES, workers.ROUTES, kinds.ROUTES)
