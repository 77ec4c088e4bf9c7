"""The filters that lists and bulk changes share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from jobyard.domain.job import State
from jobyard.ports.store import Filter

F = TypeVar("F", bound=Callable[..., Any])

STATES = click.Choice([str(state) for state in State], case_sensitive=False)


def filter_options(function: F) -> F:
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
        )
    ):
        function = option(function)
    return function


def make_filter(
    queue: str | None, group: str | None, kind: str | None, states: tuple[str, ...], tag: str | None
) -> Filter:
    chosen = tuple(State(state) for state in states) or None
    return Filter(queue=queue, group=group, kind=kind, states=chosen, tag=tag)


def in_words(where: Filter) -> str:
    """
    >>> in_words(Filter(queue="mail", states=(State.FAILED, State.TIMEOUT)))
    'FAILED or TIMEOUT, queue mail'
    """
    parts = [" or ".join(where.states)] if where.states else []
    for word in ("queue", "group", "kind", "tag"):
        value = getattr(where, word)
        if value is not None:
            parts.append(f"{word} {value}")
    return ", ".join(parts) or "in every queue and state"
