"""Options of a job or a schedule as the body of a request, validated as `Jobyard` would."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

import msgspec

from jobyard.api.schemas.jobs import DelaysBackoff, ExponentialBackoff, FixedBackoff, JobRequest, UniqueRequest
from jobyard.domain import options
from jobyard.domain.instant import rfc3339
from jobyard.domain.job import Unique
from jobyard.domain.job_options import JobOptions, checked_options
from jobyard.domain.options import Option
from jobyard.errors import BadInput, BadOption
from jobyard.executors.python.payload import to_json

# A sanity check only: the server has its own, smaller limit.
MAX_BYTES = 64 << 20


def job_request(kind: str, payload: Any = None, **given: Unpack[JobOptions]) -> JobRequest:
    """A job to submit with `enqueue_many`.

    >>> job_request("send_mail", {"to": "ann"}, delay=60, queue="mail").delay_seconds
    60
    >>> job_request("send_mail", delai=60)
    Traceback (most recent call last):
      ...
    jobyard.errors.BadOption: Unknown job option delai. Did you mean "delay"?
    """
    if given.get("transaction") is not None:
        raise BadOption("A server cannot join a transaction of this program.", option="transaction")
    fields = checked_options(given)
    if "run_at" in fields:
        fields["run_at"] = given["run_at"]
    if "backoff" in fields:
        fields["backoff"] = _backoff(fields["backoff"])
    if "unique" in fields:
        fields["unique"] = _unique(fields["unique"])
    if "private_payload" in fields:
        fields["private_payload"] = msgspec.json.decode(
            to_json(fields["private_payload"], "private payload", MAX_BYTES)
        )
    return JobRequest(kind=options.check_name("kind", kind), payload=_object(payload), **fields)


def schedule_body(given: Mapping[str, Any], table: Mapping[str, Option]) -> dict[str, Any]:
    """Options of a schedule, named as in `table`, as the fields of a request.

    >>> from datetime import timedelta
    >>> from jobyard.operations.schedule_options import SCHEDULE_OPTIONS
    >>> schedule_body({"timeout": timedelta(minutes=1), "end": None}, SCHEDULE_OPTIONS)
    {'timeout_seconds': 60.0, 'end_at': None}
    >>> schedule_body({"expresion": "@daily"}, SCHEDULE_OPTIONS)
    Traceback (most recent call last):
      ...
    jobyard.errors.BadOption: Unknown schedule option expresion. Did you mean "expression"?
    """
    fields = options.check_options(table, given, "schedule")
    times = {name: rfc3339(fields[name]) for name in ("start_at", "end_at") if fields.get(name) is not None}
    return fields | times


def _object(payload: Any) -> dict[str, Any]:
    if payload is None:
        return {}
    data = to_json(payload, "payload", MAX_BYTES)
    if not data.startswith(b"{"):
        raise BadInput("The payload must be an object with the parameters of the handler.")
    return msgspec.json.decode(data, type=dict[str, Any])


def _backoff(value: msgspec.Struct) -> Any:
    return msgspec.convert(msgspec.to_builtins(value), FixedBackoff | ExponentialBackoff | DelaysBackoff)


def _unique(unique: Unique) -> UniqueRequest:
    return UniqueRequest(key=unique.key, scope=unique.scope, period_seconds=unique.period_seconds)
