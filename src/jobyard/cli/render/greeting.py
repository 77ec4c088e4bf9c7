"""What a server says when it is up: where it is, the first token, and three things to try."""

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
    url: str, yard: Jobyard, access: Access, doing: str, queues: Mapping[str, str] | None = None
) -> Iterator[str]:
    """`queues`: the URLs, without secrets, of those that have a store of their own."""
    yield f"jobyard is up at {url} ({yard.store.url}; {doing}). Ctrl-C stops it."
    for queue, store in (queues or {}).items():
        yield f"Queue {queue} is in {store}."
    if access.is_open:
        yield "Everybody on this machine may do everything here (--insecure)."
    elif access.first_token is not None:
        yield "The first token, for an admin; it is shown this once:"
        yield ""
        yield f"  export {VARIABLE}={access.first_token}"
    else:
        yield "Come in with a token; `jobyard tokens create NAME --role admin` makes one:"
        yield ""
        yield f"  export {VARIABLE}=…"
    yield ""
    yield "Then try, in another terminal:"
    yield ""
    for line in try_next(url, yard, is_open=access.is_open):
        yield f"  {line}"
    yield ""
    yield f"The API, to read and to try: {url}/docs"


def try_next(url: str, yard: Jobyard, *, is_open: bool = False) -> list[str]:
    """Commands that work as they are printed: hand in a job, see how it went, watch what happens."""
    who = "" if is_open else f' -H "Authorization: Bearer ${VARIABLE}"'
    body = shlex.quote(msgspec.json.encode(sample_job(yard)).decode())
    lines: list[str] = []
    if yard.sandbox is not None:
        lines.append(f"curl -s '{url}/execute?wait=5'{who} -H 'Content-Type: application/json' -d {PROGRAM}")
    return [
        *lines,
        f"curl -s {url}/v1/jobs{who} -H 'Content-Type: application/json' -d {body}",
        f"curl -s '{url}/v1/jobs?page_size=3'{who}",
        f"curl -sN {url}/v1/events{who}",
    ]


def sample_job(yard: Jobyard) -> dict[str, Any]:
    """One that the first handler with simple parameters can run; any, where there is no application."""
    for name, definition in declarations_of(yard).tasks.items():
        payload = sample(definition.handler)
        if payload is not None:
            return {"kind": name, "payload": payload}
    return {"kind": "example", "payload": {}}


def sample(kind: Handler) -> dict[str, Any] | None:
    """A payload made of the types of the parameters that have no default; None when that does not work."""
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
