"""Cron expressions: what they mean, in instants and in words."""

from __future__ import annotations

from collections.abc import Iterator

from jobyard.domain.instant import Instant


class Cron:
    """A checked expression in a time zone. Raises BadOption for what is no expression, or no zone."""

    def __init__(self, expression: str, timezone: str = "UTC") -> None:
        self.expression = expression
        self.timezone = timezone

    def after(self, instant: Instant) -> Iterator[Instant]:
        """Its instants later than that one, in order; ends when there is none for fifty years."""
        raise NotImplementedError

    def next(self, instant: Instant) -> Instant | None:
        raise NotImplementedError

    def in_words(self) -> str:
        """For a person, in plain English."""
        raise NotImplementedError
