"""The tables of options and the typed places that repeat their names agree."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.json import schema
from tests.support import subcommands

from jobyard.api.schemas.jobs import JobRequest
from jobyard.api.schemas.schedules import ScheduleChange, ScheduleRequest
from jobyard.app.task import HandlerOptions
from jobyard.cli import cli
from jobyard.domain.job_options import DEFAULTS, JOB_OPTIONS, JobOptions, with_options
from jobyard.domain.options import Option
from jobyard.domain.schedule import Schedule
from jobyard.errors import BadOption
from jobyard.operations.schedule_options import (
    BY_FIELD,
    SCHEDULE_OPTIONS,
    CronOptions,
    ScheduleChanges,
    ScheduleOptions,
    make_schedule,
)


def test_job_options_have_the_same_names_everywhere() -> None:
    assert set(JobOptions.__annotations__) == set(JOB_OPTIONS)
    assert {option.field for option in JOB_OPTIONS.values()} == set(DEFAULTS.__struct_fields__)
    in_json = {option.field for option in JOB_OPTIONS.values() if option.in_json}
    assert set(JobRequest.__struct_fields__) == in_json | {"kind", "payload"}
    assert set(HandlerOptions.__annotations__) - set(JOB_OPTIONS) == {"name", "transactional"}


def test_schedule_options_have_the_same_names_everywhere() -> None:
    assert set(CronOptions.__annotations__) == set(SCHEDULE_OPTIONS) - {"expression", "kind"}
    assert set(ScheduleOptions.__annotations__) == set(CronOptions.__annotations__) - {"name", "payload"}
    assert set(ScheduleChanges.__annotations__) == set(SCHEDULE_OPTIONS) - {"name", "enabled"}
    assert set(BY_FIELD) < set(Schedule.__struct_fields__)
    assert set(ScheduleRequest.__struct_fields__) == set(BY_FIELD)
    assert set(ScheduleChange.__struct_fields__) == set(BY_FIELD) - {"name", "enabled"}


@pytest.mark.parametrize(("command", "options"), [("enqueue", JOB_OPTIONS), ("cron add", SCHEDULE_OPTIONS)])
def test_each_option_of_the_command_line_is_a_flag(command: str, options: dict[str, Option]) -> None:
    found: Any = cli
    for name in command.split():
        found = subcommands(found)[name]
    flags = {flag for parameter in found.params for flag in parameter.opts}
    assert {option.cli_flag for option in options.values() if option.in_cli} <= flags


def bounds(of: type, field: str) -> dict[str, Any]:
    found = schema(of)["$defs"][of.__name__]["properties"][field]
    options = found.get("anyOf", [found])
    return next(each for each in options if each.get("type") in ("integer", "number"))


@pytest.mark.parametrize("name", ["priority", "delay", "max_attempts", "timeout"])
def test_the_schema_of_a_job_has_the_bounds_of_the_table(name: str) -> None:
    found = bounds(JobRequest, JOB_OPTIONS[name].field)
    least, most = found["minimum" if "minimum" in found else "exclusiveMinimum"], found["maximum"]
    with_options(DEFAULTS, {name: most})
    for outside in (least - 1, most + 1):
        with pytest.raises(BadOption):
            with_options(DEFAULTS, {name: outside})


@pytest.mark.parametrize("field", ["priority", "max_retry", "timeout_seconds", "missed_limit"])
def test_the_schema_of_a_schedule_has_the_bounds_of_the_table(field: str) -> None:
    found = bounds(ScheduleRequest, field)
    least, most = found["minimum" if "minimum" in found else "exclusiveMinimum"], found["maximum"]
    given = {"name": "s", "expression": "@daily", "kind": "k"}
    make_schedule({**given, field: most})
    for outside in (least - 1, most + 1):
        with pytest.raises(BadOption) as caught:
            make_schedule({**given, field: outside})
        assert caught.value.option == field
