"""Logging to stderr, with a level for everything and one per component."""

from __future__ import annotations

import logging
from typing import Any

from jobyard.cli.render.output import echo
from jobyard.config.log_levels import parse_levels
from jobyard.config.settings import LOG_LEVEL
from jobyard.domain.instant import rfc3339
from jobyard.errors import ConfigurationError
from jobyard.observability.current import current_lease, lease_fields, trace_id
from jobyard.observability.log_sanitizer import OneLineFilter

PLAIN = "%(asctime)s %(levelname)-7s {service}%(name)s: %(message)s"


def set_up_logs(
    text: str | None,
    usual: str = LOG_LEVEL.default,
    *,
    everything: bool = False,
    as_json: bool = False,
    service_name: str | None = None,
) -> None:
    """`everything`: also log lines of the application, unless it has set up logging itself."""
    levels = parse_levels(text or "", usual)
    logger, root = logging.getLogger("jobyard"), logging.getLogger()
    formatter = json_formatter(service_name) if as_json else text_formatter(service_name)
    if not any(isinstance(handler, StderrHandler) for handler in logger.handlers):
        logger.addHandler(StderrHandler())
        logger.propagate = False
    if everything and not root.handlers:
        root.addHandler(StderrHandler())
        root.setLevel(levels["jobyard"].upper())
    for handler in (*logger.handlers, *root.handlers):
        if isinstance(handler, StderrHandler):
            handler.setFormatter(formatter)
            handler.filters = [] if as_json else [OneLineFilter()]  # JSON escapes line breaks itself
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level.upper())
    if root.level == logging.INFO:
        # It logs every request at this level.
        logging.getLogger("httpx2").setLevel(logging.WARNING)


class StderrHandler(logging.Handler):
    """A class of its own, to distinguish it from the handlers of the application. Looks up stderr on each call."""

    def emit(self, record: logging.LogRecord) -> None:
        echo(self.format(record), err=True)


def text_formatter(service_name: str | None) -> logging.Formatter:
    service = "" if service_name is None else f"[{service_name}] ".replace("%", "%%")
    return logging.Formatter(PLAIN.format(service=service))


def json_formatter(service_name: str | None = None) -> logging.Formatter:
    """One JSON object per line, with the `extra` fields of the record, such as the job id."""
    try:
        from pythonjsonlogger.json import JsonFormatter  # noqa: PLC0415  # an extra
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            "log.format json needs the Python package python-json-logger, which is not installed. "
            "Install it with: pip install 'jobyard[server]'"
        ) from error

    class Formatter(JsonFormatter):
        def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
            return rfc3339(round(record.created * 1000))

        def add_fields(self, log_data: dict[str, Any], record: logging.LogRecord, message_dict: dict[str, Any]) -> None:
            super().add_fields(log_data, record, message_dict)
            lease = current_lease.get()
            if lease is not None and "job_id" not in log_data:
                log_data |= lease_fields(lease)
            if service_name is not None:
                log_data["service"] = service_name
            trace = trace_id()
            if trace:
                log_data["trace_id"] = trace

    return Formatter(
        ("asctime", "levelname", "name", "message"),
        rename_fields={"asctime": "time", "levelname": "level", "name": "logger", "exc_info": "error"},
        json_ensure_ascii=True,
    )
