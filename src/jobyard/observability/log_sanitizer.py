"""One line per log record: text from users, such as the message of an error, must not forge further lines.

The filters work in every program that uses jobyard, whatever handlers and formatters it has set up.
"""

from __future__ import annotations

import logging
from textwrap import indent
from traceback import format_exception

from jobyard.domain.text import visible

COMPONENTS = (
    *("app", "executor", "http", "live_events", "metrics", "sandbox"),
    *("scheduler", "server", "store", "tracing", "worker"),
)
INDENT = "    "  # no line of a traceback begins as a record does


class OneLineFilter(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        shown = visible(message)
        if shown != message:
            record.msg, record.args = shown, None
        if record.exc_info and record.exc_text is None:
            lines = "".join(format_exception(*record.exc_info)).rstrip("\n")
            record.exc_text = indent(visible(lines, lines=True), INDENT, lambda _: True)
        if record.stack_info and not record.stack_info.startswith(INDENT):
            record.stack_info = indent(visible(record.stack_info, lines=True), INDENT, lambda _: True)
        return True


def protect_logs() -> None:
    """Add the filter to the loggers of all components; a filter does not apply to the children of a logger."""
    for component in COMPONENTS:
        logger = logging.getLogger(f"jobyard.{component}")
        if not any(isinstance(each, OneLineFilter) for each in logger.filters):
            logger.addFilter(OneLineFilter())
