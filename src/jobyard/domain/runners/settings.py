"""Settings of the runner manager."""

from __future__ import annotations

import msgspec

from jobyard.domain.runners.profile import RunnerProfile, RunnerTimeouts


class ManagerSettings(msgspec.Struct, frozen=True, kw_only=True):
    profiles: tuple[RunnerProfile, ...] = ()
    max_total: int = 100
    max_per_org: int = 10
    org_limits: dict[str, int] = {}
    organizations: tuple[str, ...] = ()  # known from the configuration; others are known once they had an event
    instance: str = "jobyard"
    tick_seconds: float = 5.0  # a safety net: webhooks, ended pods and changed limits take effect at once
    full_seconds: float = 300.0  # everything is compared with GitHub and the cluster
    redelivery_seconds: float = 60.0
    warm_url: str = ""  # the address under which warm runners reach the server

    def profile(self, name: str) -> RunnerProfile | None:
        return next((profile for profile in self.profiles if profile.name == name), None)

    def timeouts_of(self, name: str) -> RunnerTimeouts:
        """Of a profile; the defaults for one that is not configured any more."""
        profile = self.profile(name)
        return RunnerTimeouts() if profile is None else profile.timeouts

    @property
    def has_warm(self) -> bool:
        return any(profile.warm for profile in self.profiles)
