"""Which job this code runs for: set by the worker, read by whoever writes a log line or a span."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from jobyard.domain.lease import Lease

current_lease: ContextVar[Lease | None] = ContextVar("jobyard_lease", default=None)


def facts(lease: Lease) -> dict[str, Any]:
    """What a log line says of a job, beside its words."""
    return {"job_id": lease.job_id, "kind": lease.kind, "queue": lease.queue, "attempt": lease.attempt}
