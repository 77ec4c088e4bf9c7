"""Requests as spans, in the trace of whoever sends them."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from opentelemetry import trace
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.types import ASGIApp, Receive, Scope, Send

from jobyard.observability.tracing import Tracing

# Asked for all the time, and of no interest.
QUIET = frozenset({"/livez", "/readyz", "/health", "/metrics"})
_propagator = TraceContextTextMapPropagator()


class TracingMiddleware:
    """Around the application. Paths hold names and ids, so a span is named after the route, once that is known."""

    def __init__(self, app: ASGIApp, tracing: Tracing) -> None:
        self._app = app
        self._tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in QUIET:
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        given = {"traceparent": headers["traceparent"]} if "traceparent" in headers else {}
        with self._tracing.tracer.start_as_current_span(
            scope["method"],
            context=_propagator.extract(given),
            kind=SpanKind.SERVER,
            attributes={"http.request.method": scope["method"], "url.path": scope["path"]},
        ) as span:
            await self._app(scope, receive, watching(send, span))
            route = getattr(scope.get("endpoint"), "path", None)
            if route is not None:
                span.update_name(f"{scope['method']} {route}")
                span.set_attribute("http.route", route)


def watching(send: Send, span: trace.Span) -> Send:
    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            span.set_attribute("http.response.status_code", message["status"])
            if message["status"] >= 500:
                span.set_status(Status(StatusCode.ERROR))
        await send(message)

    return sending
