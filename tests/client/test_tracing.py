"""Trace context of the client in submitted jobs."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.trace import TracerProvider
from tests.server.support import serving
from tests.support import python

from jobyard.client import Client


async def test_the_trace_context_is_sent() -> None:
    seen: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            seen.append(dict(scope["headers"]).get(b"traceparent", b"").decode())
            headers = [(b"content-type", b"application/json")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": b'{"items": []}'})

    async with serving(app) as url, Client(url) as client:
        await client.queues()
        with TracerProvider().get_tracer("tests").start_as_current_span("the caller") as span:
            await client.queues()
            trace_id = f"{span.get_span_context().trace_id:032x}"
    assert seen[0] == ""
    assert seen[1].split("-")[1] == trace_id


def test_opentelemetry_is_not_imported_without_tracing(tmp_path: Any) -> None:
    code = (
        "import sys; from jobyard.client.transport import trace_headers; "
        "print(trace_headers(), any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    assert python("-c", code, cwd=tmp_path).stdout == "{} False\n"
