"""Ids of runner groups by name, and whether a repository can use them; cached, because every launch asks."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from jobyard.domain.instant import Instant
from jobyard.errors import did_you_mean
from jobyard.github.api import GitHubApi, RunnerGroup
from jobyard.ports.clock import Clock

CACHE_MS = 300_000


class FoundGroup(NamedTuple):
    id: int | None
    problem: str = ""


class RunnerGroups:
    DEFAULT_ID: ClassVar[int] = 1

    def __init__(self, github: GitHubApi, clock: Clock) -> None:
        self._github = github
        self._clock = clock
        self._cache: dict[tuple[str, str | None], tuple[Instant, list[RunnerGroup]]] = {}

    async def find(self, org: str, name: str, repo_full_name: str) -> FoundGroup:
        """The id of the group, if the repository can use it."""
        groups = await self._groups(org, None)
        group = next((each for each in groups if each.name.casefold() == name.casefold()), None)
        if group is None:
            names = [each.name for each in groups]
            return FoundGroup(None, f'{org} has no runner group "{name}".{did_you_mean(name, names)}')
        if group.visibility == "all":
            return FoundGroup(group.id)
        repository = repo_full_name.partition("/")[2]
        if any(each.id == group.id for each in await self._groups(org, repository)):
            return FoundGroup(group.id)
        return FoundGroup(
            None,
            f'{repo_full_name} cannot use the runner group "{name}". '
            "Add the repository to the group in the organization's settings.",
        )

    async def _groups(self, org: str, visible_to: str | None) -> list[RunnerGroup]:
        now = self._clock.now()
        read_at, groups = self._cache.get((org, visible_to), (None, []))
        if read_at is None or not 0 <= now - read_at < CACHE_MS:
            groups = await self._github.runner_groups(org, visible_to)
            self._cache[org, visible_to] = (now, groups)
        return groups
