"""The caller's trace travels with a request, so that a job's spans hang below it."""

from __future__ import annotations

import sys


def trace_headers() -> dict[str, str]:
    """Whoever traces has OpenTelemetry loaded; for others nothing is loaded here."""
    if "opentelemetry.trace" not in sys.modules:
        return {}
    from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415
        TraceContextTextMapPropagator,
    )

    headers: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(headers)
    return headers
