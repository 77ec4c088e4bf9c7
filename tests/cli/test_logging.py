"""JSON logs: one object per line, with the job id, also for log lines of handlers."""

from __future__ import annotations

import json
import logging
import os
import re
from pathlib import Path
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from tests.cli.support import Shop, shop

from jobyard.cli.logging import json_formatter
from jobyard.observability.log_sanitizer import INDENT

__all__ = ["shop"]

APP = """
import logging
from jobyard import BlockingContext, Context, Jobyard

yard = Jobyard("sqlite:///shop.db")
log = logging.getLogger("shop")

@yard.job()
async def speak(ctx: Context) -> None:
    log.warning("from\\na task", extra={"order": 7})

@yard.job()
def say(ctx: BlockingContext) -> None:
    log.warning("from a thread")

@yard.job(max_attempts=1)
async def fail(ctx: Context) -> None:
    try:
        1 / 0
    except ZeroDivisionError:
        log.exception("it went wrong")
        raise
"""


def logged(shop: Shop, *words: str) -> list[dict[str, Any]]:
    with shop.start(*words) as process:
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 0, errors
    return [json.loads(line) for line in errors.splitlines()]


def test_every_line_is_a_json_object_with_its_job(shop: Shop) -> None:
    (shop.folder / f"{shop.module}.py").write_text(APP)
    Path("jobyard.yaml").write_text("log: {format: json, level: 'info,worker=debug'}\n")
    jobs = {kind: shop.run("enqueue", kind).stdout.strip() for kind in ("speak", "say", "fail")}
    lines = logged(shop, "worker", "--until-empty")
    spoken = {line["message"]: line for line in lines if line["logger"] == "shop"}
    assert spoken["from\na task"]["job_id"] == jobs["speak"]
    assert (spoken["from\na task"]["order"], spoken["from\na task"]["level"]) == (7, "WARNING")
    assert (spoken["from a thread"]["job_id"], spoken["from a thread"]["kind"]) == (jobs["say"], "say")
    assert "ZeroDivisionError" in spoken["it went wrong"]["error"]
    [failed] = [line for line in lines if line["level"] == "ERROR" and line["logger"] == "jobyard.worker"]
    assert (failed["job_id"], failed["kind"], failed["queue"], failed["attempt"]) == (
        jobs["fail"],
        "fail",
        "default",
        1,
    )
    [started] = [line for line in lines if " started: " in line["message"]]
    assert "job_id" not in started
    assert all(line["time"].endswith("Z") for line in lines)


def test_a_line_inside_a_span_carries_its_trace() -> None:
    formatter = json_formatter()
    record = logging.LogRecord("shop", logging.INFO, __file__, 1, "words", (), None)
    assert "trace_id" not in json.loads(formatter.format(record))
    with TracerProvider().get_tracer("test").start_as_current_span("span") as span:
        answer = json.loads(formatter.format(record))
    assert answer["trace_id"] == trace.format_trace_id(span.get_span_context().trace_id)


def test_a_fatal_error_is_a_json_line(shop: Shop) -> None:
    result = shop.run("--log-format", "json", "worker", JOBYARD_STORE="sqlit:///a.db", JOBYARD_STROE="x")
    assert result.exit_code == 1
    warned, refused = (json.loads(line) for line in result.stderr.splitlines())
    assert (warned["level"], refused["level"]) == ("WARNING", "CRITICAL")
    assert 'Did you mean "sqlite"?' in refused["message"]


def test_the_error_of_a_command_is_a_sentence_whatever_the_log_format(shop: Shop) -> None:
    result = shop.run("--log-format", "json", "jobs", "show", "nothing", JOBYARD_STROE="x")
    assert result.exit_code == 1
    warned, refused = result.stderr.splitlines()
    assert warned.startswith("Warning: JOBYARD_STROE")
    assert refused.startswith("Error: ")


def test_the_name_of_the_service_is_in_every_line(shop: Shop) -> None:
    shop.enqueue("fail")
    text = shop.run("worker", "--until-empty", SERVICE_NAME="oliveyoung 100%").stderr.splitlines()
    assert text
    assert all(" [oliveyoung 100%] jobyard." in line for line in text if not line.startswith(INDENT))
    shop.enqueue("fail")
    words = ("--log-format", "json", "worker", "--until-empty")
    lines = [json.loads(line) for line in shop.run(*words, SERVICE_NAME="ably").stderr.splitlines()]
    assert {line["service"] for line in lines} == {"ably"}
    [started] = [line["message"] for line in lines if " started: " in line["message"]]
    assert re.match(rf"worker ably-{os.getpid()}-[0-9a-f]{{6}} started: ", started)


def test_text_format_by_default(shop: Shop) -> None:
    shop.enqueue("fail")
    result = shop.run("worker", "--until-empty")
    assert "ERROR   jobyard.worker: fail " in result.stderr
