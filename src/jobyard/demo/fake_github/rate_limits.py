"""Rate limits: counted ones, and those that a fault pretends."""

from __future__ import annotations

import math

from jobyard.demo.fake_github.auth import AppPrincipal, Principal
from jobyard.demo.fake_github.calls import ApiResponse, reply
from jobyard.demo.fake_github.entities import Token
from jobyard.demo.fake_github.errors import ApiError
from jobyard.demo.fake_github.model import FakeGitHub

WINDOW = 3600.0
REGISTRATIONS = 10_000
PRETENDED_LIMIT = 5000


class RateLimits:
    def __init__(self, github: FakeGitHub) -> None:
        self._github = github

    def count(self, principal: Principal) -> None:
        """Count one call; refuse it when the limit is used up."""
        limit = self._github.rate_limit
        if limit is None:
            return
        token = self._current(principal)
        if token.calls >= limit:
            raise ApiError(403, f"API rate limit exceeded for {_subject(principal)}.")
        token.calls += 1

    def headers(self, principal: Principal) -> dict[str, str]:
        limit = self._github.rate_limit
        if limit is None:
            return {}
        token = self._current(principal)
        return _headers(limit, token.calls, token.window_ends_at)

    def show(self, principal: Principal) -> ApiResponse:
        limit = self._github.rate_limit
        if limit is None:
            raise ApiError(404, "Rate limiting is not enabled.")
        token = self._current(principal)
        reset = math.ceil(token.window_ends_at)
        core = {"limit": limit, "remaining": limit - token.calls, "reset": reset, "used": token.calls}
        other = {"limit": REGISTRATIONS, "remaining": REGISTRATIONS, "reset": reset, "used": 0}
        resources = {"core": core, "search": {**other, "limit": 30, "remaining": 30}, "graphql": other}
        return reply({"resources": {**resources, "actions_runner_registration": other}, "rate": core})

    def pretend(self) -> None:
        """Refuse the call if a fault says so."""
        core, faults = self._github.core, self._github.faults
        seconds = faults.limit_seconds
        if core.hits("primary_limit"):
            headers = _headers(PRETENDED_LIMIT, PRETENDED_LIMIT, core.clock() + seconds)
            raise ApiError(core.rng.choice((403, 429)), "API rate limit exceeded for installation.", headers=headers)
        if core.hits("secondary_limit"):
            self._secondary({"Retry-After": str(math.ceil(seconds))})
        if core.hits("secondary_without_retry_after"):
            self._secondary({})

    def _secondary(self, headers: dict[str, str]) -> None:
        message = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."
        raise ApiError(self._github.core.rng.choice((403, 429)), message, headers=headers)

    def _current(self, principal: Principal) -> Token:
        token = principal.token if isinstance(principal, AppPrincipal) else principal
        now = self._github.core.clock()
        if token.window_ends_at <= now:
            token.calls, token.window_ends_at = 0, now + WINDOW
        return token


def _headers(limit: int, used: int, reset: float) -> dict[str, str]:
    return {
        "X-RateLimit-Limit": str(limit),
        "X-RateLimit-Remaining": str(limit - used),
        "X-RateLimit-Used": str(used),
        "X-RateLimit-Reset": str(math.ceil(reset)),
        "X-RateLimit-Resource": "core",
    }


def _subject(principal: Principal) -> str:
    if isinstance(principal, Token) and principal.installation is not None:
        return f"installation ID {principal.installation.id}"
    return "user ID 21"
