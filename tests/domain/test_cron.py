"""Cron expressions, held to what a clock on the wall of each zone shows."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice, pairwise, takewhile
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jobyard.domain.cron import ALIASES, Cron
from jobyard.domain.instant import FOREVER, Instant, instant, rfc3339
from jobyard.errors import BadOption

MINUTE = timedelta(minutes=1)
# Days of 2026 and 2027 on which their clocks are changed: by an hour at night, at midnight, by half an hour, by two.
CHANGES = {
    "Europe/Berlin": ("2026-03-29", "2026-10-25"),
    "America/New_York": ("2026-03-08", "2026-11-01"),
    "Australia/Sydney": ("2026-04-05", "2026-10-04"),
    "Africa/Cairo": ("2026-04-24", "2026-10-30"),
    "America/Santiago": ("2026-04-05", "2026-09-06"),
    "America/Havana": ("2026-03-08", "2026-11-01"),
    "Australia/Lord_Howe": ("2026-04-05", "2026-10-04"),
    "Antarctica/Troll": ("2026-03-29", "2026-10-25"),
}
DAYS = [(zone, day) for zone, days in CHANGES.items() for day in days]
WILD = ("* * * * *", "*/15 * * * *", "7,37 * * * *", "*/20 1-3 * * *", "5 */2 * * *", "30 * * * *", "*/30 0 * * *")
SPARSE = ("*/30 1 1 11 *", "*/30 2 25 10 *", "50 30 2 8 3 *", "*/20 2 5 4 *", "15 0 24 4 *")
FIXED = ("30 2 * * *", "0 0 * * *", "30 0 * * *", "15,45 1,2,3 * * *", "0 3 * * *", "59 1 * * *", "30 1-3 * * *")


def window(zone: str, day: str) -> tuple[datetime, datetime]:
    middle = datetime.fromisoformat(day).replace(hour=12, tzinfo=ZoneInfo(zone)).astimezone(UTC)
    return middle - timedelta(hours=36), middle + timedelta(hours=36)


def fired(expression: str, zone: str, since: datetime, until: datetime) -> list[datetime]:
    last = round(until.timestamp() * 1000)
    found = takewhile(lambda at: at <= last, Cron(expression, zone).after(round(since.timestamp() * 1000)))
    return [datetime.fromtimestamp(at / 1000, UTC) for at in found]


@lru_cache
def wall(zone: str, day: str) -> tuple[tuple[datetime, datetime], ...]:
    """Each minute from a day before the window, and what the clock on the wall shows then."""
    since, until = window(zone, day)
    begin = since - timedelta(days=1)
    all_minutes = [begin + MINUTE * number for number in range(1, (until - begin) // MINUTE + 1)]
    return tuple((at, at.astimezone(ZoneInfo(zone)).replace(tzinfo=None)) for at in all_minutes)


@lru_cache
def shown_first(zone: str, day: str) -> dict[datetime, datetime]:
    """What the wall shows, and when it does so first."""
    found: dict[datetime, datetime] = {}
    for at, shown in wall(zone, day):
        found.setdefault(shown, at)
    return found


@lru_cache
def times(expression: str) -> frozenset[tuple[int, int]]:
    """A small cron of our own, for what the expressions here use: hours and minutes."""

    def values(field: str, most: int) -> set[int]:
        found: set[int] = set()
        for term in field.split(","):
            span, _, step = term.partition("/")
            low, _, high = span.partition("-")
            found.update((range(most) if span == "*" else range(int(low), int(high or low) + 1))[:: int(step or 1)])
        return found

    minute, hour, *_ = expression.split()
    return frozenset((each, other) for each in values(hour, 24) for other in values(minute, 60))


def matches(expression: str, shown: datetime) -> bool:
    return (shown.hour, shown.minute) in times(expression)


@pytest.mark.parametrize(("zone", "day"), DAYS)
@pytest.mark.parametrize("expression", WILD)
def test_wildcards_fire_whenever_the_wall_shows_them(expression: str, zone: str, day: str) -> None:
    since, until = window(zone, day)
    expected = [at for at, shown in wall(zone, day) if at > since and matches(expression, shown)]
    assert fired(expression, zone, since, until) == expected


@pytest.mark.parametrize(("zone", "day"), DAYS)
@pytest.mark.parametrize("expression", FIXED)
@pytest.mark.parametrize("seconds", ["", "20 "])
def test_fixed_times_fire_once_a_day(expression: str, zone: str, day: str, seconds: str) -> None:
    since, until = window(zone, day)
    shown = shown_first(zone, day)
    first, last = min(shown), max(shown)
    expected: set[datetime] = set()
    for midnight in (first.replace(hour=0, minute=0) + timedelta(days=number) for number in range(7)):
        for hour, minute in times(expression):
            wanted = midnight.replace(hour=hour, minute=minute)
            exactly = timedelta(seconds=int(seconds or 0))
            if first <= wanted <= last:
                while wanted not in shown:  # it was left out: the first time after that
                    wanted, exactly = wanted + MINUTE, timedelta(0)
                expected.add(shown[wanted] + exactly)
    assert fired(seconds + expression, zone, since, until) == sorted(at for at in expected if since < at <= until)


@given(
    zone=st.sampled_from(sorted(CHANGES)),
    expression=st.sampled_from((*WILD, *FIXED, *SPARSE, "*/20 30 * * * *", "50 30 1,2 * * *", "@daily", "0 0 * * 0")),
    start=st.integers(instant("2026-01-01"), instant("2026-12-31")),
    skipped=st.integers(0, 30),
    part=st.floats(0, 1, exclude_max=True),
)
@example(zone="America/New_York", expression="50 30 2 8 3 *", start=1_772_900_000_000, skipped=0, part=0.0)
@example(zone="Europe/Berlin", expression="30 2 * * *", start=instant("2026-10-25T00:20:00Z"), skipped=0, part=0.03)
def test_counting_from_a_later_start_gives_the_same_instants(
    zone: str, expression: str, start: Instant, skipped: int, part: float
) -> None:
    """Schedulers begin at different times: each must come to the same instants."""
    cron = Cron(expression, zone)
    found = list(islice(cron.after(start), 40))
    assert all(earlier < later for earlier, later in pairwise([start, *found]))
    earlier, later = found[skipped : skipped + 2]
    between = earlier + int((later - earlier) * part)
    assert list(islice(cron.after(between), 5)) == found[skipped + 1 : skipped + 6]
    assert cron.next(later - 1) == later


@pytest.mark.parametrize(
    ("expression", "zone", "since", "until"),
    [
        ("50 30 2 * * *", "America/New_York", "2026-03-08T06:50:00Z", "2026-03-08T07:00:00Z"),
        ("*/30 1 1 11 *", "America/New_York", "2026-01-15", "2026-11-01T05:00:00Z"),
        ("*/30 1 1 11 *", "America/New_York", "2026-07-15", "2026-11-01T05:00:00Z"),
        ("*/30 2 25 10 *", "Europe/Berlin", "2025-11-15", "2026-10-25T00:00:00Z"),
    ],
)
def test_the_next_instant_is_the_same_from_any_earlier_instant(
    expression: str, zone: str, since: str, until: str
) -> None:
    cron = Cron(expression, zone)
    begin, end = instant(since), instant(until)
    steps = max(1000, (end - begin) // 500)
    assert {cron.next(at) for at in range(begin, end, steps)} == {end}
    assert cron.next(end - 1) == end


@pytest.mark.parametrize(
    ("expression", "zone", "since", "expected"),
    [
        ("0 0 29 2 *", "UTC", "2026-11-16", ["2028-02-29T00:00:00", "2032-02-29T00:00:00"]),
        ("59 59 23 31 12 *", "UTC", "2026-11-16", ["2026-12-31T23:59:59", "2027-12-31T23:59:59"]),
        ("0 0 1 1 *", "Asia/Seoul", "2026-11-16", ["2026-12-31T15:00:00", "2027-12-31T15:00:00"]),
        ("@yearly", "America/New_York", "2026-11-16", ["2027-01-01T05:00:00", "2028-01-01T05:00:00"]),
        ("0 12 L * *", "UTC", "2027-02-01", ["2027-02-28T12:00:00", "2027-03-31T12:00:00"]),
        ("0 9 * * MON#1", "UTC", "2026-11-16", ["2026-12-07T09:00:00", "2027-01-04T09:00:00"]),
        ("*/30 * * * * *", "UTC", "2026-11-16T23:59:20Z", ["2026-11-16T23:59:30", "2026-11-17T00:00:00"]),
        ("0 0 13 * FRI", "UTC", "2026-11-10", ["2026-11-13T00:00:00", "2026-11-20T00:00:00"]),
    ],
)
def test_the_calendar(expression: str, zone: str, since: str, expected: list[str]) -> None:
    found = islice(Cron(expression, zone).after(instant(since)), len(expected))
    assert [rfc3339(at)[:19] for at in found] == expected


def test_the_calendar_ends() -> None:
    for zone in ("UTC", "Asia/Seoul", "America/New_York"):
        assert Cron("0 0 * * *", zone).next(FOREVER) is None
        assert Cron("*/5 * * * *", zone).next(FOREVER) is None
        assert Cron("*/5 * 1 1 *", zone).next(FOREVER - 50_000_000) is None
    assert Cron("0 0 */31 2 1#5").next(0) is None  # the fifth Monday is never the first of a month


@given(
    second=st.lists(st.integers(0, 59), min_size=1, max_size=3),
    minute=st.lists(st.integers(0, 59), min_size=1, max_size=3),
    hour=st.lists(st.integers(0, 23), min_size=1, max_size=3),
)
def test_the_shortest_time_between_two_instants(second: list[int], minute: list[int], hour: list[int]) -> None:
    cron = Cron(" ".join(",".join(map(str, values)) for values in (second, minute, hour)) + " * * *")
    found = list(takewhile(lambda at: at < 2 * 86_400_000 + 86_400_000, cron.after(-1)))
    assert cron.shortest_seconds() * 1000 == min(later - earlier for earlier, later in pairwise(found))


@pytest.mark.parametrize(
    ("expression", "detail"),
    [
        ("", "0 fields"),
        ("* * * *", "4 fields"),
        ("61 * * * *", '"61" is not a valid minute (0-59'),
        ("* * 61 * * *", '"61" is not a valid hour'),
        ("0 0 30 2 *", "it never fires"),
        ("0 0 32 * *", '"32" is not a valid day-of-month'),
        ("0 0 * * FOO", '"FOO" is not a valid day-of-week'),
        ("0 0 * * 1#2/2", '"1#2/2" is not a valid day-of-week'),
        ("*/90 * * * *", "a step of 90"),
        ("0 */25 * * *", "the hour field has 24 values"),
        ("0 0 L/2 * *", "the last day (L)"),
        ("*/0 * * * *", '"*/0" is not a valid minute'),
        ("*/99999999999999999999 * * * *", "a step of 9999999999 "),
        ("@hourlly", 'Did you mean "@hourly"?'),
        ("@every 5m", "@every 5m"),
        ("0 " * 200, "at most 200 characters, not 400"),
        ("٣ * * * *", "minute"),
    ],
)
def test_invalid_expressions_are_rejected_with_the_reason(expression: str, detail: str) -> None:
    with pytest.raises(BadOption, match=re.escape(detail)) as caught:
        Cron(expression)
    assert caught.value.option == "expression"


@given(st.text("0123456789*/,-LW#@? SUNMOJAE", max_size=25))
def test_any_text_is_a_valid_expression_or_rejected(text: str) -> None:
    try:
        cron = Cron(text)
    except BadOption:
        return
    cron.next(instant("2026-11-16"))
    assert cron.in_words()


@pytest.mark.parametrize(
    "name",
    [
        "",
        "Europe",
        "../etc/passwd",
        "localtime",
        "right/UTC",
        "Factory",
        "Mars/Olympus",
        "/etc/passwd",
        "a\0b",
        "x" * 5000,
    ],
)
def test_unknown_time_zones_are_rejected(name: str) -> None:
    with pytest.raises(BadOption) as caught:
        Cron("@daily", name)
    assert caught.value.option == "timezone"


def test_aliases_are_expressions() -> None:
    for alias in ALIASES:
        assert Cron(alias).next(0) is not None
        assert Cron(alias.upper()).in_words()
