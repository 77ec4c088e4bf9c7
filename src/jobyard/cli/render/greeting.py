"""The greeting of a server: its URL, the first token, and commands to try."""

from __future__ import annotations

import inspect
import shlex
import typing
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from jobyard.app.declarations import declarations_of
from jobyard.app.jobyard import Jobyard
from jobyard.errors import JobyardError
from jobyard.executors.python.handlers import Handler
from jobyard.server.bootstrap import Access

VARIABLE = "JOBYARD_TOKEN"
PROGRAM = """'{"language": "python", "source_code": "print(6 * 7)"}'"""
SAMPLES: dict[Any, Any] = {str: "example", int: 1, float: 1.5, bool: True}


def greeting(
    url: str,
    yard: Jobyard,
    access: Access,
    doing: str,
    queues: Mapping[str, str] | None = None,
    link: str | None = None,
) -> Iterator[str]:
    """`queues`: the stores of queues with their own, without secrets. `link`: the path of a one-time login."""
    yield f"jobyard is up at {url} ({yard.store.url}; {doing}). Ctrl-C stops it."
    for queue, store in (queues or {}).items():
        yield f"Queue {queue} is in {store}."
    if link is not None:
        yield f"Open {url}{link} to log in. The link works once, within a minute."
    if access.is_open:
        yield "Every user of this machine has full access (--insecure)."
    elif access.first_token is not None:
        yield "The first admin token, shown only once:"
        yield ""
        yield f"  export {VARIABLE}={access.first_token}"
    else:
        yield "Requests need a token; `jobyard tokens create NAME --role admin` creates one:"
        yield ""
        yield f"  export {VARIABLE}=…"
    yield ""
    yield "Then try in another terminal:"
    yield ""
    for line in try_next(url, yard, is_open=access.is_open):
        yield f"  {line}"
    yield ""
    yield f"API documentation: {url}/docs"


def try_next(url: str, yard: Jobyard, *, is_open: bool = False) -> list[str]:
    """Commands that work as printed: submit a job, list jobs, watch events."""
    authorization = "" if is_open else f' -H "Authorization: Bearer ${VARIABLE}"'
    body = shlex.quote(msgspec.json.encode(sample_job(yard)).decode())
    lines: list[str] = []
    if yard.sandbox is not None:
        lines.append(f"curl -s '{url}/execute?wait=5'{authorization} -H 'Content-Type: application/json' -d {PROGRAM}")
    return [
        *lines,
        f"curl -s {url}/v1/jobs{authorization} -H 'Content-Type: application/json' -d {body}",
        f"curl -s '{url}/v1/jobs?page_size=3'{authorization}",
        f"curl -sN {url}/v1/events{authorization}",
    ]


def sample_job(yard: Jobyard) -> dict[str, Any]:
    """A job for the first handler with simple parameters; of any kind without an application."""
    for name, definition in declarations_of(yard).tasks.items():
        payload = sample(definition.handler)
        if payload is not None:
            return {"kind": name, "payload": payload}
    return {"kind": "example", "payload": {}}


def sample(kind: Handler) -> dict[str, Any] | None:
    """A payload from the types of the required parameters; None if a type has no sample."""
    try:
        hints = typing.get_type_hints(kind.function)
        parameters = inspect.signature(kind.function).parameters
        payload = {
            name: SAMPLES[hints.get(name, str)]
            for name in kind.names
            if parameters[name].default is inspect.Parameter.empty
        }
        kind.encode(payload)
    except (KeyError, NameError, TypeError, JobyardError):
        return None
    return payload
