"""`jobyard enqueue`: submit one job."""

from __future__ import annotations

import sys
from typing import Any

import click
import msgspec

from jobyard.cli.option_flags import given_flags, option_flags
from jobyard.cli.render.json import as_json
from jobyard.cli.session import Session, async_command
from jobyard.domain.job_options import JOB_OPTIONS
from jobyard.errors import PayloadNotJson


@click.command()
@click.argument("kind")
@click.argument("payload", nargs=-1)
@option_flags(JOB_OPTIONS.values())
@click.option("--wait", type=click.FloatRange(min=0), metavar="SECONDS", help="Wait for the job and print its result.")
@async_command
async def enqueue(session: Session, /, kind: str, payload: tuple[str, ...], wait: float | None, **options: Any) -> None:
    """Enqueue one job; the app validates kind and payload.

    PAYLOAD is a JSON object with the handler's parameters, `-` to read it from standard input, or name=value pairs (a
    value is parsed as JSON if possible, else it is text).

    \b
    Example:
      jobyard --app shop.jobs:yard enqueue send_mail '{"to": "a@example.org", "copies": 2}'
      jobyard --app shop.jobs:yard enqueue send_mail to=a@example.org copies=2 --wait 10
    """
    given = given_flags(options)
    value = parse_payload(payload)
    async with session.operations(needs_app=True) as operations:
        job = await operations.submit(kind, {} if value is None else value, given)
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


def parse_payload(arguments: tuple[str, ...]) -> Any:
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
            raise click.UsageError(f"{argument!r} is not name=value.")
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


def _json(text: str, what: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except RecursionError as error:
        raise _too_deep(what) from error
    except msgspec.DecodeError as error:
        raise PayloadNotJson(
            f'Cannot enqueue: {what} is not JSON: {error}. Write \'{{"name": "value"}}\' or name=value pairs.'
        ) from error
