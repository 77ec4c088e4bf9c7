"""The job and the trace that the current code runs for."""

from __future__ import annotations

import sys
from contextvars import ContextVar
from typing import Any

from jobyard.domain.lease import Lease

current_lease: ContextVar[Lease | None] = ContextVar("jobyard_lease", default=None)


def lease_fields(lease: Lease) -> dict[str, Any]:
    return {"job_id": lease.job_id, "kind": lease.kind, "queue": lease.queue, "attempt": lease.attempt}


def trace_id() -> str:
    """The trace id of the current span; empty without tracing."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return ""
    context = trace.get_current_span().get_span_context()
    return f"{context.trace_id:032x}" if context.is_valid else ""
