"""`jobyard enqueue`: submit one job."""

from __future__ import annotations

import re
import sys
from datetime import datetime
from typing import Any

import click
import msgspec

from jobyard.cli.option_flags import given_flags, option_flags
from jobyard.cli.render.json import as_json
from jobyard.cli.session import Session, async_command
from jobyard.domain.job_options import JOB_OPTIONS
from jobyard.domain.options import shown
from jobyard.errors import BadInput, PayloadNotJson


@click.command()
@click.argument("kind")
@click.argument("payload", nargs=-1)
@option_flags(JOB_OPTIONS.values())
@click.option("--wait", type=click.FloatRange(min=0), metavar="SECONDS", help="Wait for the job and print its result.")
@async_command
async def enqueue(session: Session, /, kind: str, payload: tuple[str, ...], wait: float | None, **options: Any) -> None:
    """Enqueue one job; the app validates kind and payload.

    PAYLOAD is a JSON object with the handler's parameters, `-` to read it from standard input, or name=value pairs (a
    value is parsed as JSON if possible, else it is text). TIME is like 2026-12-24T18:00:00+01:00 (UTC without a zone),
    "in 10 minutes" or +10m.

    \b
    Example:
      jobyard --app shop.jobs:yard enqueue send_mail '{"to": "a@example.org", "copies": 2}'
      jobyard --app shop.jobs:yard enqueue send_mail to=a@example.org copies=2 --wait 10
      jobyard --app shop.jobs:yard enqueue send_mail to=a@example.org --at 2026-12-24T18:00:00+01:00
    """
    given = given_flags(options)
    if "run_at" in given:
        if "delay" in given:
            raise click.UsageError("Pass --delay or --at, not both.")
        given["run_at"] = datetime.fromisoformat(given["run_at"])
    value = parse_payload(payload)
    async with session.operations(needs_app=True) as operations:
        try:
            job = await operations.submit(kind, value, given)
        except BadInput as error:
            hint = text_hint(payload, error)
            if not hint:
                raise
            raise BadInput(f"{error}{hint}") from error
        result = b"null" if wait is None else await operations.result(job.id, wait)
    if session.as_json:
        answer = {"id": job.id, "created": job.created}
        session.print_json(answer if wait is None else answer | {"result": msgspec.json.decode(result)})
    elif wait is not None:
        session.echo(as_json(msgspec.json.decode(result), indent=-1))
    else:
        session.echo(job.id)
        if not job.created:
            session.echo_error("No new job: an unfinished job has this unique key, and this is its id.")


def text_hint(payload: tuple[str, ...], error: BadInput) -> str:
    """How to pass text that is also JSON, if that is what was wrong."""
    name = re.search(r" (\w+): expected str,", str(error))
    pairs = dict(word.split("=", 1) for word in payload if _is_pair(word))
    if name is None or name[1] not in pairs:
        return ""
    return f" It was read as JSON; for text, write {name[1]}='\"{pairs[name[1]]}\"'."


def parse_payload(arguments: tuple[str, ...]) -> dict[str, Any]:
    """
    >>> parse_payload(("to=anna", "copies=2", 'tags=["a"]'))
    {'to': 'anna', 'copies': 2, 'tags': ['a']}
    >>> parse_payload(('{"to": "anna"}',))
    {'to': 'anna'}
    """
    if arguments == ("-",):
        return _json(sys.stdin.read(), "standard input")
    if len(arguments) == 1 and not _is_pair(arguments[0]):
        return _json(arguments[0], "payload")
    payload: dict[str, Any] = {}
    for argument in arguments:
        if not _is_pair(argument):
            raise _not_a_payload(argument)
        name, _, text = argument.partition("=")
        if name in payload:
            raise click.UsageError(f"{name} is given more than once.")
        try:
            payload[name] = msgspec.json.decode(text)
        except RecursionError as error:
            raise _too_deep(name) from error
        except msgspec.DecodeError:
            payload[name] = text
    return payload


def _is_pair(word: str) -> bool:
    name, equals, _ = word.partition("=")
    return bool(equals) and name.isidentifier()


def _too_deep(what: str) -> PayloadNotJson:
    return PayloadNotJson(f"Cannot enqueue: {what} is nested too deeply. Pass flatter data, or a reference to it.")


def _not_a_payload(text: str) -> BadInput:
    return BadInput(f"Cannot read {shown(text)} as payload. Write name=value pairs such as a=1 b=2, or a JSON object.")


def _json(text: str, what: str) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(text)
    except RecursionError as error:
        raise _too_deep(what) from error
    except msgspec.DecodeError as error:
        raise PayloadNotJson(
            f'Cannot enqueue: {what} is not JSON: {error}. Write \'{{"name": "value"}}\' or name=value pairs.'
        ) from error
    if not isinstance(value, dict):
        raise _not_a_payload(text)
    return value
