"""Which job and which trace this code runs for: read by whoever writes a log line, a span or a refusal."""

from __future__ import annotations

import sys
from contextvars import ContextVar
from typing import Any

from jobyard.domain.lease import Lease

current_lease: ContextVar[Lease | None] = ContextVar("jobyard_lease", default=None)


def facts(lease: Lease) -> dict[str, Any]:
    """What a log line says of a job, beside its words."""
    return {"job_id": lease.job_id, "kind": lease.kind, "queue": lease.queue, "attempt": lease.attempt}


def trace_id() -> str:
    """Of the span that this code runs in; empty where nobody traces."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return ""
    context = trace.get_current_span().get_span_context()
    return f"{context.trace_id:032x}" if context.is_valid else ""
