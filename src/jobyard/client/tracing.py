"""Trace context of the caller as request headers, so that the spans of a job continue the trace."""

from __future__ import annotations

import sys


def trace_headers() -> dict[str, str]:
    """Empty unless the program has imported OpenTelemetry, so that nothing is imported only for this."""
    if "opentelemetry.trace" not in sys.modules:
        return {}
    from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415
        TraceContextTextMapPropagator,
    )

    headers: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(headers)
    return headers
