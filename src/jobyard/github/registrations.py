"""GitHub's list of registered runners, read at most every few seconds per organization, and only while it matters."""

from __future__ import annotations

from collections.abc import Iterable

from jobyard.domain.instant import Instant
from jobyard.domain.runners.github_job import RunnerScope
from jobyard.domain.runners.runner import Runner, RunnerState
from jobyard.github.api import GitHubApi, RegisteredRunner
from jobyard.github.errors import GitHubError
from jobyard.ports.clock import Clock

POLL_MS = 10_000
# Runners in these states are waited for: GitHub tells whether they are online and have a job.
WATCHED = frozenset({RunnerState.STARTING, RunnerState.NOT_ONLINE, RunnerState.IDLE, RunnerState.BUSY})
# A busy runner ends by itself, and its event says so; the list is for events that were lost.
BUSY_POLL_MS = 60_000


class Registrations:
    def __init__(self, github: GitHubApi, clock: Clock) -> None:
        self._github = github
        self._clock = clock
        self._lists: dict[RunnerScope, tuple[Instant, dict[str, RegisteredRunner]]] = {}

    async def refresh(self, runners: Iterable[Runner]) -> None:
        """Read the lists of the scopes that have runners to wait for. A list that cannot be read stays as it was."""
        now = self._clock.now()
        intervals: dict[RunnerScope, int] = {}
        for runner in runners:
            if runner.state in WATCHED:
                interval = BUSY_POLL_MS if runner.state is RunnerState.BUSY else POLL_MS
                intervals[runner.scope] = min(interval, intervals.get(runner.scope, interval))
        for scope, interval in intervals.items():
            read_at = self._lists.get(scope, (0, {}))[0]
            if 0 <= now - read_at < interval:
                continue
            try:
                found = await self._github.runners(scope)
            except GitHubError:
                continue
            # The time before the call: what was registered later may be missing.
            self._lists[scope] = (now, {each.name: each for each in found})

    def get(self, runner: Runner) -> RegisteredRunner | None:
        return self._lists.get(runner.scope, (0, {}))[1].get(runner.name)

    def is_gone(self, runner: Runner, registered_before: Instant) -> bool:
        """Whether a list that was read after its registration, and lately, does not have the runner."""
        read_at, found = self._lists.get(runner.scope, (0, {}))
        registered_at = runner.minted_at or runner.created_at
        return read_at > registered_at and registered_at < registered_before and runner.name not in found
