"""OpenTelemetry tracing of a yard, and the setup of its SDK for the jobyard commands."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jobyard.errors import ConfigurationError

if TYPE_CHECKING:
    from jobyard.observability.tracing import Tracing

OTLP = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
CONSOLE = "opentelemetry.sdk.trace.export"


def make_tracing(provider: Any = None, *, as_link: bool = False) -> Tracing:
    try:
        from jobyard.observability.tracing import Tracing  # noqa: PLC0415  # an extra
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            "Cannot trace: OpenTelemetry is not installed. Run: pip install 'jobyard[tracing]'."
        ) from error
    return Tracing(provider, as_link=as_link)


def set_up_sdk(service: str) -> Callable[[], None]:
    """Set up the SDK to export as OTEL_TRACES_EXPORTER says (otlp, console or none); returns its shutdown function.

    A process that is set up already, for example by `opentelemetry-instrument`, is left as it is.
    """
    try:
        from opentelemetry import trace  # noqa: PLC0415
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            "Cannot trace: the SDK of OpenTelemetry is not installed. "
            "Run: pip install opentelemetry-sdk opentelemetry-exporter-otlp-proto-http."
        ) from error
    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return lambda: None
    provider = TracerProvider(resource=Resource.create({"service.name": os.environ.get("OTEL_SERVICE_NAME", service)}))
    exporter = make_exporter(os.environ.get("OTEL_TRACES_EXPORTER", "otlp"))
    if exporter is not None:
        provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return provider.shutdown


def make_exporter(name: str) -> Any:
    if name == "none":
        return None
    if name == "console":
        return importlib.import_module(CONSOLE).ConsoleSpanExporter()
    if name != "otlp":
        raise ConfigurationError(f"OTEL_TRACES_EXPORTER must be otlp, console or none, not {name}.")
    try:
        return importlib.import_module(OTLP).OTLPSpanExporter()
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            "Cannot trace: the exporter is not installed. Run: pip install opentelemetry-exporter-otlp-proto-http, "
            "or set OTEL_TRACES_EXPORTER to console or none."
        ) from error
