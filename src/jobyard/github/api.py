"""What the manager needs of GitHub's REST API, as a protocol. `github.client` implements it over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from jobyard.domain.instant import Instant
from jobyard.domain.runners.github_job import GitHubJob, RunnerScope


class JitConfig(msgspec.Struct, frozen=True):
    """A registration for one runner. `encoded` contains its private key: it is never logged or stored."""

    runner_id: int
    name: str
    encoded: str

    def __repr__(self) -> str:
        return f"JitConfig(runner_id={self.runner_id}, name={self.name!r})"


class RegisteredRunner(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    name: str
    is_online: bool
    is_busy: bool
    labels: tuple[str, ...] = ()
    version: str | None = None


class RunnerRemoval(StrEnum):
    REMOVED = "removed"
    BUSY = "busy"  # it runs a job, so it must be kept
    ABSENT = "absent"


class RunnerGroup(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    name: str
    visibility: str = "all"  # all, selected or private
    is_default: bool = False
    allows_public_repositories: bool = False


class HookDelivery(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt to deliver an event; a redelivery has the same guid and another id."""

    id: int
    guid: str
    delivered_at: Instant
    event: str
    action: str | None
    status_code: int
    org: str | None = None  # of an organization hook; None: of the App's hook
    hook_id: int | None = None

    @property
    def succeeded(self) -> bool:
        return 200 <= self.status_code < 300


class GitHubApi(Protocol):
    """Methods raise GitHubError; its subclasses say whether to retry.

    Every method has a deadline of its own: a GitHub that hangs raises GitHubUnavailable.
    """

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    # Runners

    async def generate_jitconfig(
        self, scope: RunnerScope, name: str, group_id: int, labels: Sequence[str], work_folder: str = "_work"
    ) -> JitConfig:
        """Register a just-in-time runner. Raises RunnerNameTaken for a name that exists."""

    async def runners(self, scope: RunnerScope) -> list[RegisteredRunner]:
        """All registered runners of the scope."""

    async def runner_by_name(self, scope: RunnerScope, name: str) -> RegisteredRunner | None: ...

    async def runner(self, scope: RunnerScope, runner_id: int) -> RegisteredRunner | None: ...

    async def remove_runner(self, scope: RunnerScope, runner_id: int) -> RunnerRemoval: ...

    async def runner_groups(self, org: str, visible_to: str | None = None) -> list[RunnerGroup]:
        """The runner groups of an organization; with `visible_to`, only those a repository (by name) can use."""

    # Jobs; `repo` is the full name

    async def job(self, repo: str, job_id: int) -> GitHubJob | None:
        """The job in its present state, None if it does not exist. A job whose run has ended is COMPLETED."""

    async def run_jobs(self, repo: str, run_id: int) -> list[GitHubJob] | None:
        """The jobs of the last attempt of a run, as `job` gives them; None if the run does not exist."""

    async def queued_jobs(self, repo: str) -> list[GitHubJob]:
        """The jobs of the repository's unfinished runs that wait for a runner or are held back."""

    # Webhook deliveries

    def deliveries(self, since: Instant) -> AsyncIterator[HookDelivery]:
        """Deliveries of the App's hook, or of the configured organization hooks, newest first, down to `since`."""

    async def redeliver(self, delivery: HookDelivery) -> None: ...

    # Checks

    async def repositories(self, org: str) -> list[str]:
        """Full names of repositories of the organization that the access includes, as far as it can list them."""

    async def check(self) -> list[str]:
        """Problems of the access as a whole: wrong credentials, missing permissions. Empty: none was found."""

    async def check_org(self, org: str) -> list[str]:
        """Problems of the access to one organization: not installed, missing permissions."""
