"""Cron expressions, evaluated by cronsim with the semantics of Debian's cron."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from itertools import pairwise
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from jobyard.domain.instant import EPOCH, FOREVER, Instant
from jobyard.errors import BadOption, did_you_mean

ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
MAX_EXPRESSION = 200
DAY_SECONDS = 86_400
# Parsed expressions that are cached.
CACHED = 4096
# (name, allowed values, number of values)
FIELDS = (
    ("second", "0-59", 60),
    ("minute", "0-59", 60),
    ("hour", "0-23", 24),
    ("day-of-month", "1-31, L or LW", 31),
    ("month", "1-12 or JAN-DEC", 12),
    ("day-of-week", "0-7 or SUN-SAT, 1#2, 1L", 7),
)
_MILLISECOND = timedelta(milliseconds=1)
_WALL_EPOCH = EPOCH.replace(tzinfo=None)


class Cron:
    """A valid expression in a time zone. Raises BadOption for an invalid expression or an unknown zone.

    >>> from jobyard.domain.instant import instant, rfc3339
    >>> rfc3339(Cron("0 9 * * 1-5", "Asia/Seoul").next(instant("2026-11-14")))
    '2026-11-16T00:00:00.000Z'
    """

    def __init__(self, expression: str, timezone: str = "UTC") -> None:
        self._counter = _parsed(expression)
        self._zone = zone(timezone)
        # Fixed times fire once a day, also when the clocks change.
        minute, hour = self._counter.parts[1:3]
        self._is_wall_time = self._zone is not UTC and not minute.startswith("*") and not hour.startswith("*")

    def after(self, instant: Instant) -> Iterator[Instant]:
        """The instants later than that one, in order; ends when there is none for fifty years."""
        found = self._at_fixed_times(instant) if self._is_wall_time else self._at_any_time(instant)
        while True:
            try:
                at = next(found, FOREVER + 1)
            except OverflowError:  # the calendar ends with the year 9999
                return
            if at > FOREVER:
                return
            # In a repeated hour the wall clock shows times that have passed.
            if at > instant:
                yield at
                instant = at

    def _at_fixed_times(self, instant: Instant) -> Iterator[Instant]:
        """Times in a skipped hour fire once, at its end; times in a repeated hour fire the first time."""
        counter = self._counting_from(instant, self._offset(instant))
        while _advance(counter):
            late, early = (
                (counter.dt.replace(tzinfo=self._zone, fold=fold) - EPOCH) // _MILLISECOND for fold in (0, 1)
            )
            if early < late:  # this wall time does not exist: the change lies between
                late = self._change(early, late, self._offset(early)) or late
                counter = self._counting_from(late, self._offset(late))
            yield late

    def _at_any_time(self, instant: Instant) -> Iterator[Instant]:
        """Count as if the clocks never changed, and start over at each change."""
        offset = self._offset(instant)
        counter = self._counting_from(instant, offset)
        while _advance(counter):
            at = (counter.dt - _WALL_EPOCH) // _MILLISECOND - offset
            change = self._change(instant, at, offset)
            if change is None:
                instant = at
                yield at
            else:
                instant, offset = change, self._offset(change)
                counter = self._counting_from(change - 1, offset)

    def _counting_from(self, instant: Instant, offset: int) -> CronSim:
        counter = copy(self._counter)
        counter.dt = (_WALL_EPOCH + timedelta(milliseconds=instant + offset)).replace(microsecond=0)
        return counter

    def _offset(self, instant: Instant) -> int:
        """The UTC offset of the zone, in milliseconds."""
        if self._zone is UTC:
            return 0
        before = (EPOCH + timedelta(milliseconds=instant)).astimezone(self._zone).utcoffset()
        return (before or timedelta()) // _MILLISECOND

    def _change(self, since: Instant, until: Instant, offset: int) -> Instant | None:
        """When the UTC offset changed in that time; `offset` applies at its start.

        A change is undone within a day at the earliest, so the first and the last day are checked separately.
        """
        if self._zone is UTC:
            return None
        low = since
        day = DAY_SECONDS * 1000
        for high in (min(until, since + day), max(since, until - day), until):
            if self._offset(high) != offset:
                break
            low = high
        else:
            return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._offset(middle) == offset else (low, middle)
        return high

    def next(self, instant: Instant) -> Instant | None:
        return next(self.after(instant), None)

    def shortest_seconds(self) -> int:
        """The shortest time between two instants on consecutive days.

        >>> Cron("*/15 * * * * *").shortest_seconds(), Cron("0,58 * * * *").shortest_seconds()
        (15, 120)
        >>> Cron("0 9 * * *").shortest_seconds()
        86400
        """
        shortest, span = DAY_SECONDS, 0
        for values, unit in ((self._counter.seconds, 1), (self._counter.minutes, 60), (self._counter.hours, 3600)):
            ordered = sorted(values)
            steps = [(later - earlier) * unit for earlier, later in pairwise(ordered)]
            shortest = min(shortest, *(step - span for step in steps), shortest)
            span += (ordered[-1] - ordered[0]) * unit
        return min(shortest, DAY_SECONDS - span)

    def every_seconds(self) -> int | None:
        """The time between two instants, if it is always the same.

        >>> [Cron(each).every_seconds() for each in ("*/5 * * * *", "*/7 * * * *", "* 9-17 * * *")]
        [300, None, None]
        """
        counter = self._counter
        if len(counter.hours) < 24 or counter.parts[3:] != ["*", "*", "*"]:
            return None
        number = len(counter.seconds) * len(counter.minutes) * len(counter.hours)
        # If that many of the shortest intervals fill the day, all are equal.
        return self.shortest_seconds() if self.shortest_seconds() * number == DAY_SECONDS else None

    def in_words(self) -> str:
        """A description in English.

        >>> Cron("0 9 * * 1-5").in_words(), Cron("*/20 * * * * *").in_words()
        ('At 09:00 on Monday through Friday', 'Every 20th second of every minute')
        """
        return self._counter.explain()


def _advance(counter: CronSim) -> bool:
    """Advance to the next time, if there is one; the calendar ends with the year 9999."""
    try:
        return next(counter, None) is not None
    except (OverflowError, ValueError):
        return False


@lru_cache(CACHED)
def cron(expression: str, timezone: str) -> Cron:
    return Cron(expression, timezone)


def zone(name: str) -> tzinfo:
    """The time zone of that name.

    >>> zone("Asia/Soul")
    Traceback (most recent call last):
      ...
    jobyard.errors.BadOption: Unknown time zone Asia/Soul. Did you mean "Asia/Seoul"?
    """
    if name in ("UTC", "Etc/UTC"):
        return UTC
    if name not in _zones():
        shown = str(name)[:50]
        hint = did_you_mean(shown, _zones()) or " Use an IANA name such as Asia/Seoul."
        raise BadOption(f"Unknown time zone {shown}.{hint}", option="timezone")
    return ZoneInfo(name)


@lru_cache(1)
def _zones() -> frozenset[str]:
    """Time zone names, without those whose meaning depends on the machine."""
    return frozenset(available_timezones()) - {"localtime", "posixrules", "Factory"}


def bad_expression(message: str) -> BadOption:
    return BadOption(message, option="expression")


@lru_cache(CACHED)
def _parsed(expression: str) -> CronSim:
    if len(expression) > MAX_EXPRESSION:
        raise bad_expression(f"A cron expression has at most {MAX_EXPRESSION} characters, not {len(expression)}.")
    text = expression.strip()
    if text.startswith("@"):
        if text.lower() not in ALIASES:
            known = ", ".join(ALIASES)
            raise bad_expression(f"Unknown alias {text}.{did_you_mean(text.lower(), ALIASES)} Use one of {known}.")
        text = ALIASES[text.lower()]
    fields = text.split()
    if len(fields) not in (5, 6):
        raise bad_expression(
            f'Invalid cron expression "{text}": it has {len(fields)} fields, not 5 '
            "(minute, hour, day-of-month, month, day-of-week) or 6 with seconds in front."
        )
    _check_steps(text, fields)
    try:
        return CronSim(text, datetime(2000, 1, 1))  # `dt` is set for each iteration
    except (CronSimError, AssertionError, ValueError, TypeError) as error:
        raise bad_expression(f'Invalid cron expression "{text}": {_why(fields, str(error))}') from None


def _check_steps(text: str, fields: list[str]) -> None:
    """Reject a step beyond its field, which cron would accept with an unexpected meaning."""
    for (name, _, size), field in zip(FIELDS[-len(fields) :], fields, strict=True):
        for term in field.split(","):
            span, slash, step = term.partition("/")
            if slash and "L" in span.upper() and name == "day-of-month":
                raise bad_expression(f'Invalid cron expression "{text}": the last day ({span}) cannot have steps.')
            if step.isdecimal() and (len(step) > 3 or int(step) > size):
                raise bad_expression(
                    f'Invalid cron expression "{text}": the {name} field has {size} values, so a step of {step[:10]} '
                    "would never reach a second one."
                )


def _why(fields: list[str], message: str) -> str:
    name = message.removeprefix("Bad ")
    known = {field: (allowed, index) for index, (field, allowed, _) in enumerate(FIELDS[-len(fields) :])}
    if name not in known:
        return "it has characters that no field allows."
    allowed, index = known[name]
    if name == "day-of-month" and _is_valid_in_other_months(fields):
        return "it never fires, because none of its months has that day."
    return f'"{fields[index]}" is not a valid {name} ({allowed}, with lists, ranges and steps).'


def _is_valid_in_other_months(fields: list[str]) -> bool:
    try:
        CronSim(" ".join([*fields[:-2], "*", fields[-1]]), datetime(2000, 1, 1))
    except CronSimError:
        return False
    return True
