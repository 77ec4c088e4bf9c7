"""Hides internal tags and keys of a job, which only the server and tracing read."""

from __future__ import annotations

import msgspec

from jobyard.api.convert import IDEMPOTENCY
from jobyard.domain.job import Job
from jobyard.domain.tags import TRACE


def without_internals(job: Job) -> Job:
    """The job without its trace tag and the key of its Idempotency-Key."""
    is_internal = job.unique_key is not None and job.unique_key.startswith(IDEMPOTENCY)
    tags = tuple(tag for tag in job.tags if not tag.startswith(TRACE))
    if not is_internal and len(tags) == len(job.tags):
        return job
    return msgspec.structs.replace(job, unique_key=None if is_internal else job.unique_key, tags=tags)
