"""Filter options, shared by lists and bulk changes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from jobyard.cli.times import time_value
from jobyard.domain.instant import rfc3339
from jobyard.domain.job import State
from jobyard.ports.admin_store import Filter


class StateChoice(click.Choice[str]):
    """A state in either case; errors show the states as the help does."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        return f"{str(value)[:50]!r} is not one of {', '.join(State)}."


STATES = StateChoice([str(state) for state in State], case_sensitive=False)


def filter_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options; the function gets them as a Filter named `where`."""

    @functools.wraps(function)
    def filtered(*args: Any, states: tuple[str, ...], **options: Any) -> Any:
        given = {name: options.pop(name) for name in Filter.__struct_fields__ if name in options}
        chosen = tuple(State(state) for state in states) or None
        return function(*args, where=Filter(states=chosen, **given), **options)

    for option in reversed(
        (
            click.option("--queue", metavar="NAME", help="Only jobs of this queue."),
            click.option("--group", metavar="NAME", help="Only jobs of this group."),
            click.option("--kind", metavar="NAME", help="Only jobs of this kind."),
            click.option(
                "--state",
                "states",
                type=STATES,
                multiple=True,
                metavar="STATE",
                help=f"Only jobs in this state ({', '.join(State)}); repeatable.",
            ),
            click.option("--tag", metavar="TAG", help="Only jobs with this tag."),
            click.option("--text", metavar="TEXT", help="Only jobs whose JSON payload contains this text."),
            click.option(
                "--created-after", callback=time_value, metavar="TIME", help="Only jobs created since this time."
            ),
            click.option(
                "--created-before", callback=time_value, metavar="TIME", help="Only jobs created before this time."
            ),
        )
    ):
        option(filtered)
    return filtered


def describe(where: Filter) -> str:
    """
    >>> describe(Filter(queue="mail", states=(State.FAILED, State.TIMEOUT)))
    'FAILED or TIMEOUT, queue mail'
    >>> describe(Filter(text="ann", created_before=0))
    'text ann, created before 1970-01-01T00:00:00.000Z'
    """
    parts = [" or ".join(where.states)] if where.states else []
    for word in ("queue", "group", "kind", "tag", "text"):
        value = getattr(where, word)
        if value is not None:
            parts.append(f"{word} {value}")
    if where.created_after is not None:
        parts.append(f"created at or after {rfc3339(where.created_after)}")
    if where.created_before is not None:
        parts.append(f"created before {rfc3339(where.created_before)}")
    return ", ".join(parts) or "in every queue and state"
