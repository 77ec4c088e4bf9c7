"""From the words of an enqueue to what is sent, checked as a yard in this process would."""

from __future__ import annotations

from typing import Any, Unpack

import msgspec

from jobyard.api.schemas.jobs import DelaysBackoff, ExponentialBackoff, FixedBackoff, JobRequest, UniqueRequest
from jobyard.domain import options
from jobyard.domain.job import Unique
from jobyard.domain.job_options import JobOptions, checked_options
from jobyard.errors import BadInput, BadOption
from jobyard.executors.python.payload import to_json

# The server has the last word about sizes; this only keeps a mistake from travelling.
MOST_BYTES = 64 << 20


def job_request(kind: str, payload: Any = None, **given: Unpack[JobOptions]) -> JobRequest:
    """A job to be handed in, alone or with others. The words are those of `yard.enqueue`.

    >>> job_request("send_mail", {"to": "ann"}, delay=60, queue="mail").delay_seconds
    60
    >>> job_request("send_mail", delai=60)
    Traceback (most recent call last):
      ...
    jobyard.errors.BadOption: Unknown job option delai. Did you mean "delay"?
    """
    if given.get("transaction") is not None:
        raise BadOption("A transaction of this program cannot be joined from a server.")
    fields = checked_options(given)
    if "run_at" in fields:
        fields["run_at"] = given["run_at"]
    if "backoff" in fields:
        fields["backoff"] = _backoff(fields["backoff"])
    if "unique" in fields:
        fields["unique"] = _unique(fields["unique"])
    if "private_payload" in fields:
        to_json(fields["private_payload"], "private payload", MOST_BYTES)
    return JobRequest(kind=options.check_name("kind", kind), payload=_object(payload), **fields)


def _object(payload: Any) -> dict[str, Any]:
    if payload is None:
        return {}
    data = to_json(payload, "payload", MOST_BYTES)
    if not data.startswith(b"{"):
        raise BadInput("A payload is an object with the handler's parameters.")
    return payload if isinstance(payload, dict) else msgspec.json.decode(data, type=dict[str, Any])


def _backoff(value: msgspec.Struct) -> Any:
    return msgspec.convert(msgspec.to_builtins(value), FixedBackoff | ExponentialBackoff | DelaysBackoff)


def _unique(unique: Unique) -> UniqueRequest:
    return UniqueRequest(key=unique.key, scope=unique.scope, period_seconds=unique.period_seconds)
