"""What the server needs of the runner manager."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from jobyard.domain.runners.settings import ManagerSettings
from jobyard.github.api import GitHubApi
from jobyard.github.event_ingest import EventIngest
from jobyard.github.queries import RunnerQueries
from jobyard.github.warm_delivery import WarmDelivery


@dataclass(frozen=True, kw_only=True)
class RunnerServices:
    settings: ManagerSettings
    ingest: EventIngest
    github: GitHubApi
    webhook_secrets: tuple[str, ...]
    queries: RunnerQueries

    @cached_property
    def warm(self) -> WarmDelivery:
        return WarmDelivery(self.settings, self.ingest, self.github)

    def __repr__(self) -> str:  # without the secrets
        return f"RunnerServices({', '.join(profile.name for profile in self.settings.profiles)})"
