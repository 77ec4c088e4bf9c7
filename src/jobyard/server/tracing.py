"""Spans of HTTP requests, in the trace of the caller."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from opentelemetry import trace
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.types import ASGIApp, Receive, Scope, Send

from jobyard.observability.tracing import Tracing

# Polled all the time; their spans would only add noise.
UNTRACED_PATHS = frozenset({"/livez", "/readyz", "/health", "/metrics"})
_propagator = TraceContextTextMapPropagator()


class TracingMiddleware:
    """Spans are named after the route, because paths contain ids; the route is known only after dispatch."""

    def __init__(self, app: ASGIApp, tracing: Tracing) -> None:
        self._app = app
        self._tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in UNTRACED_PATHS:
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        carrier = {"traceparent": headers["traceparent"]} if "traceparent" in headers else {}
        with self._tracing.tracer.start_as_current_span(
            scope["method"],
            context=_propagator.extract(carrier),
            kind=SpanKind.SERVER,
            attributes={"http.request.method": scope["method"], "url.path": scope["path"]},
        ) as span:
            await self._app(scope, receive, recording_status(send, span))
            route = getattr(scope.get("endpoint"), "path", None)
            if route is not None:
                span.update_name(f"{scope['method']} {route}")
                span.set_attribute("http.route", route)


def recording_status(send: Send, span: trace.Span) -> Send:
    async def send_and_record(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            span.set_attribute("http.response.status_code", message["status"])
            if message["status"] >= 500:
                span.set_status(Status(StatusCode.ERROR))
        await send(message)

    return send_and_record
