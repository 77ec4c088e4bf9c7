"""What the fake keeps: accounts, groups, tokens, hooks, runs, jobs, runners."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from jobyard.demo.fake_github.keys import RsaKey

JobStatus = Literal["queued", "in_progress", "completed", "waiting", "pending"]
PERMISSIONS = {
    "actions": "read",
    "administration": "write",
    "metadata": "read",
    "organization_hooks": "write",
    "organization_self_hosted_runners": "write",
}


@dataclass(eq=False, kw_only=True)
class Owner:
    """An organization, or a user who owns repositories."""

    id: int
    login: str
    type: Literal["Organization", "User"] = "Organization"
    repositories: dict[str, Repository] = field(default_factory=dict)
    groups: dict[int, RunnerGroup] = field(default_factory=dict)
    # Runner ids are counted per owner, so two organizations have runners with the same id.
    last_runner_id: int = 0


@dataclass(eq=False, kw_only=True)
class Repository:
    id: int
    owner: Owner
    name: str
    private: bool = True
    created_at: float = 0.0
    last_run_number: int = 0

    @property
    def full_name(self) -> str:
        return f"{self.owner.login}/{self.name}"


@dataclass(eq=False, kw_only=True)
class RunnerGroup:
    id: int
    name: str
    visibility: Literal["all", "private", "selected"] = "all"
    repositories: list[Repository] = field(default_factory=list)
    allows_public_repositories: bool = False
    # Shared by the enterprise: visible here, but runners cannot be registered in it from here.
    inherited: bool = False

    @property
    def default(self) -> bool:
        return self.id == 1

    def serves(self, repository: Repository) -> bool:
        """Whether a job of the repository may run on a runner of this group."""
        if not repository.private and not self.allows_public_repositories:
            return False
        match self.visibility:
            case "all":
                return True
            case "private":
                return repository.private
            case "selected":
                return repository in self.repositories


@dataclass(eq=False, kw_only=True)
class App:
    id: int
    slug: str
    client_id: str
    key: RsaKey | None = None
    hook: Hook | None = None
    created_at: float = 0.0


@dataclass(eq=False, kw_only=True)
class Installation:
    id: int
    owner: Owner
    permissions: dict[str, str] = field(default_factory=lambda: dict(PERMISSIONS))
    created_at: float = 0.0


@dataclass(eq=False, kw_only=True)
class Token:
    """An installation token, or a personal access token with scopes."""

    value: str
    expires_at: float | None = None
    installation: Installation | None = None
    permissions: dict[str, str] = field(default_factory=dict)
    scopes: frozenset[str] = frozenset()
    calls: int = 0
    window_ends_at: float = 0.0


@dataclass(eq=False, kw_only=True)
class Hook:
    id: int
    url: str
    secret: str
    scope: Literal["app", "organization", "repository"]
    target_id: int
    events: Sequence[str] = ("workflow_job",)
    content_type: Literal["json", "form"] = "json"
    owner: Owner | None = None
    repository: Repository | None = None
    created_at: float = 0.0
    active: bool = True


@dataclass(kw_only=True)
class JobSpec:
    """A job as a workflow file describes it. `needs` holds positions of earlier jobs of the run."""

    labels: Sequence[str]
    duration: float = 10.0
    conclusion: Literal["success", "failure", "timed_out", "neutral", "action_required"] = "success"
    name: str | None = None
    environment: str | None = None
    needs: Sequence[int] = ()
    skipped: bool = False


@dataclass(eq=False, kw_only=True)
class Run:
    id: int
    repository: Repository
    number: int
    specs: list[JobSpec]
    head_sha: str
    head_branch: str = "main"
    workflow_name: str = "CI"
    event: str = "push"
    attempt: int = 1
    created_at: float = 0.0
    started_at: float = 0.0
    updated_at: float = 0.0
    max_parallel: int | None = None
    concurrency: str | None = None
    # Set when the run ended although jobs have not: `startup_failure`.
    ended_as: str | None = None
    cancelled: bool = False
    # All jobs of all attempts, and those that count now, by position in `specs`.
    jobs: list[Job] = field(default_factory=list)
    current: dict[int, Job] = field(default_factory=dict)

    def latest(self) -> list[Job]:
        return list(self.current.values())


@dataclass(eq=False, kw_only=True)
class Job:
    id: int
    run: Run
    position: int
    spec: JobSpec
    name: str
    attempt: int
    status: JobStatus
    created_at: float
    queued_at: float
    started_at: float | None = None
    completed_at: float | None = None
    conclusion: str | None = None
    runner: Runner | None = None
    # Kept apart from `runner`, which is null while the job is only assigned.
    runner_named: RunnerName | None = None
    deployment: Deployment | None = None
    expiry: asyncio.TimerHandle | None = None
    timer: asyncio.TimerHandle | None = None
    label_set: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self.label_set = frozenset(label.lower() for label in self.spec.labels)

    @property
    def repository(self) -> Repository:
        return self.run.repository


@dataclass(frozen=True, kw_only=True)
class RunnerName:
    """Runner fields of a job, kept after the runner record is gone."""

    id: int | None
    name: str | None
    group_id: int | None
    group_name: str | None


@dataclass(eq=False, kw_only=True)
class Deployment:
    id: int
    environment: str
    created_at: float
    updated_at: float


@dataclass(eq=False, kw_only=True)
class Runner:
    id: int
    owner: Owner
    # None: registered for the organization.
    repository: Repository | None
    name: str
    group: RunnerGroup
    labels: tuple[str, ...]
    client_id: str
    created_at: float
    jit_expires_at: float
    status: Literal["offline", "online"] = "offline"
    busy: bool = False
    connected: bool = False
    job: Job | None = None
    removed: bool = False
    timer: asyncio.TimerHandle | None = None
    label_set: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self.label_set = frozenset(label.lower() for label in self.labels)

    def may_run(self, job: Job) -> bool:
        """Labels, scope and group decide; the job that the runner was made for does not."""
        if not job.label_set or not job.label_set <= self.label_set:
            return False
        if self.repository is not None:
            return job.repository is self.repository
        return job.repository.owner is self.owner and self.group.serves(job.repository)
