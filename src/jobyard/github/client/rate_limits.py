"""Rate limits of one credential: when GitHub asked to wait, no request is sent until then."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from gidgethub.sansio import RateLimit

from jobyard.github.errors import GitHubRateLimited

FIRST_WAIT_SECONDS = 60.0  # GitHub's rule for a limit that does not say how long it lasts; then doubled
LONGEST_WAIT_SECONDS = 3600.0  # primary limits are reset every hour; a longer wait is a mistake of a header
SHORTEST_WAIT_SECONDS = 1.0
EVERYTHING = ""  # of the credential; else the name of a resource, such as "core"
LIMIT_TEXTS = ("rate limit", "abuse detection")


class RateLimits:
    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock or (lambda: asyncio.get_running_loop().time())
        self._until: dict[str, float] = {}
        self._resources: dict[str, str] = {}  # kind of request: the resource that it counts towards
        self._unexplained = 0  # limits in a row that did not say how long they last

    def check(self, kind: str) -> None:
        """Raise GitHubRateLimited while requests of this kind have to wait."""
        wait = max(self._wait(EVERYTHING), self._wait(self._resources.get(kind, "core")))
        if wait > 0:
            raise GitHubRateLimited(f"GitHub's rate limit is used up. Retry in {wait:.0f} seconds.", wait)

    def note(self, kind: str, status: int, headers: Mapping[str, str], message: str) -> GitHubRateLimited | None:
        """Learn from a response; return the error if it is a rejection because of a rate limit."""
        resource = headers.get("x-ratelimit-resource") or "core"
        self._resources[kind] = resource
        reset = seconds_until_reset(headers)
        if reset is not None:
            self._block(resource, reset)
        if not is_rate_limited(status, headers, message):
            if status < 400:
                self._unexplained = 0
            return None
        wait = self._rejected(reset, headers)
        return GitHubRateLimited(
            f"GitHub responded with {status}, {message}. Retry in {wait:.0f} seconds.", max(wait, SHORTEST_WAIT_SECONDS)
        )

    def _rejected(self, reset: float | None, headers: Mapping[str, str]) -> float:
        """How long to wait after a rejection."""
        retry_after = seconds_of(headers.get("retry-after"), headers)
        if retry_after is not None:
            self._block(EVERYTHING, retry_after)
            return max(retry_after, reset or 0.0)
        if reset is not None:
            return reset
        # Requests that were under way together are rejected together: they count once.
        if self._wait(EVERYTHING) <= 0:
            wait = min(FIRST_WAIT_SECONDS * 2.0 ** min(self._unexplained, 10), LONGEST_WAIT_SECONDS)
            self._unexplained += 1
            self._block(EVERYTHING, wait)
        return self._wait(EVERYTHING)

    def _block(self, resource: str, seconds: float) -> None:
        self._until[resource] = max(self._until.get(resource, -math.inf), self._clock() + seconds)

    def _wait(self, resource: str) -> float:
        return self._until.get(resource, -math.inf) - self._clock()


def is_rate_limited(status: int, headers: Mapping[str, str], message: str) -> bool:
    if status == 429:
        return True
    if status != 403:
        return False
    text = message.casefold()
    return (
        "retry-after" in headers
        or headers.get("x-ratelimit-remaining") == "0"
        or any(found in text for found in LIMIT_TEXTS)
    )


def seconds_until_reset(headers: Mapping[str, str]) -> float | None:
    """Seconds until requests are allowed again; None if some are left, or if the headers do not tell."""
    try:
        limit = RateLimit.from_http(headers)
    except (ValueError, OverflowError, OSError):
        return None
    if limit is None or limit.remaining > 0:
        return None
    return _bounded((limit.reset_datetime - _now(headers)).total_seconds())


def seconds_of(text: str | None, headers: Mapping[str, str]) -> float | None:
    """The value of a Retry-After header: seconds, or a date.

    >>> seconds_of("7", {}), seconds_of("soon", {}), seconds_of("-3", {}), seconds_of(None, {})
    (7.0, None, 1.0, None)
    >>> now = {"date": "Mon, 16 Nov 2026 09:30:00 GMT"}
    >>> seconds_of("Mon, 16 Nov 2026 09:30:20 GMT", now)
    20.0
    """
    if text is None:
        return None
    try:
        return _bounded(float(text))
    except ValueError:
        at = _date(text)
        return None if at is None else _bounded((at - _now(headers)).total_seconds())


def _now(headers: Mapping[str, str]) -> datetime:
    """The time by GitHub's clock, which the headers refer to; the local clock may be wrong."""
    return _date(headers.get("date", "")) or datetime.now(UTC)


def _date(text: str) -> datetime | None:
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, TypeError):
        return None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _bounded(seconds: float) -> float:
    return max(min(seconds, LONGEST_WAIT_SECONDS), SHORTEST_WAIT_SECONDS)
