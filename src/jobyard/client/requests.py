"""From the words of an enqueue to what is sent, checked as a yard in this process would."""

from __future__ import annotations

from typing import Any

import msgspec

from jobyard.api.schemas.jobs import DelaysBackoff, ExponentialBackoff, FixedBackoff, JobRequest, UniqueRequest
from jobyard.domain.job import Unique
from jobyard.errors import BadInput, BadOption
from jobyard.executors.python.payload import to_json
from jobyard.operations import job_options as options

# The server has the last word about sizes; this only keeps a mistake from travelling.
MOST_BYTES = 64 << 20
_DEFAULTS = options.Options()


def job_request(kind: str, payload: Any = None, **given: Any) -> JobRequest:
    """A job to be handed in, alone or with others. The words are those of `yard.enqueue`.

    >>> job_request("send_mail", {"to": "ann"}, delay=60, queue="mail").delay_seconds
    60
    >>> job_request("send_mail", delai=60)
    Traceback (most recent call last):
      ...
    jobyard.errors.BadOption: There is no option delai. Did you mean "delay"?
    """
    if given.get("transaction") is not None:
        raise BadOption("A transaction of this program cannot be joined from a server.")
    given = {word: value for word, value in given.items() if value is not None}
    checked = options.with_options(_DEFAULTS, given)
    words: dict[str, Any] = {word: getattr(checked, word) for word in _SAME if word in given}
    if "delay" in given:
        words["delay_seconds"] = checked.delay_seconds
    if "timeout" in given:
        words["timeout_seconds"] = checked.timeout_seconds
    if "run_at" in given:
        words["run_at"] = given["run_at"]
    if "backoff" in given:
        words["backoff"] = _backoff(checked.backoff)
    if checked.unique is not None:
        words["unique"] = _unique(checked.unique)
    if "private" in given:
        to_json(given["private"], "private payload", MOST_BYTES)
        words["private_payload"] = given["private"]
    return JobRequest(kind=options.name("kind", kind), payload=_object(payload), **words)


_SAME = ("queue", "group", "priority", "max_attempts", "tags")


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
