"""Jobs carry marks of ours; people need not see those that only a server or a tracer reads."""

from __future__ import annotations

import msgspec

from jobyard.api.convert import IDEMPOTENCY
from jobyard.domain.job import Job
from jobyard.domain.tags import TRACE


def without_internals(job: Job) -> Job:
    """Without its trace and the key of the request that made it; whose token handed it in stays."""
    is_ours = job.unique_key is not None and job.unique_key.startswith(IDEMPOTENCY)
    tags = tuple(tag for tag in job.tags if not tag.startswith(TRACE))
    if not is_ours and len(tags) == len(job.tags):
        return job
    return msgspec.structs.replace(job, unique_key=None if is_ours else job.unique_key, tags=tags)
