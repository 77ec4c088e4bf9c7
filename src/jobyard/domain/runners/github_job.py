"""Jobs of GitHub Actions as the manager knows them: states only move forward, whatever order the events come in."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from jobyard.domain.instant import Instant


class GitHubJobState(StrEnum):
    """In the order in which they follow each other; WAITING and QUEUED may alternate."""

    WAITING = "waiting"  # held back by GitHub: an environment gate, a concurrency group, max-parallel
    QUEUED = "queued"  # GitHub wants a runner for it
    IN_PROGRESS = "in_progress"  # a runner has it
    COMPLETED = "completed"  # kept for a while, so that late events are recognized

    @property
    def rank(self) -> int:
        return {"waiting": 1, "queued": 1, "in_progress": 2, "completed": 3}[self.value]


# What GitHub calls the states in which a job must not get a runner yet.
HELD_BACK = frozenset({"waiting", "pending", "requested"})


class RunnerScope(msgspec.Struct, frozen=True, order=True):
    """Where a runner is registered: an organization, or one repository of a user account."""

    owner: str
    repository: str | None = None  # the name without the owner

    def __str__(self) -> str:
        """
        >>> str(RunnerScope("acme")), str(RunnerScope("kim", "site"))
        ('acme', 'kim/site')
        """
        return self.owner if self.repository is None else f"{self.owner}/{self.repository}"


class GitHubJob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One job of a workflow run. Times are instants of the manager unless they say otherwise."""

    job_id: int
    run_id: int
    run_attempt: int = 1
    job_name: str = ""
    repo_full_name: str = ""
    org_name: str = ""
    owner_is_user: bool = False  # runners are registered with the repository then
    labels: tuple[str, ...] = ()
    profile: str | None = None  # None: no profile serves its labels
    state: GitHubJobState = GitHubJobState.QUEUED
    url: str = ""
    installation_id: int | None = None
    runner_name: str | None = None  # of the runner that has it, from in_progress
    runner_id: int | None = None
    conclusion: str | None = None
    gate_updated_at: str = ""  # of the deployment; orders queued and waiting events
    tickets: int = 0  # how many tickets were made because of it
    ticketed_at: Instant = 0  # when the last of them was
    blocked: str = ""  # why it gets no runner for now: a code of `domain.runners.reasons`, a colon, a sentence
    blocked_until: Instant = 0
    missing_since: Instant = 0  # GitHub has answered since then that it does not know the job
    queued_at: Instant = 0  # by GitHub's clock: the order of launch
    received_at: Instant = 0
    checked_at: Instant = 0  # when GitHub last confirmed that it is queued
    started_at: Instant = 0
    completed_at: Instant = 0
    timeline: dict[str, Instant] = {}  # of the runner that has it: planned, minted, created, running, online

    @property
    def scope(self) -> RunnerScope:
        repository = self.repo_full_name.partition("/")[2]
        return RunnerScope(self.org_name, repository if self.owner_is_user else None)

    @property
    def order(self) -> tuple[Instant, int]:
        """By arrival. Two replicas may receive events in different orders, so GitHub's own time decides."""
        return self.queued_at, self.job_id


# GitHub answers 404 for a job that the access may not see, too, so one such answer does not end a job.
MISSING_MS = 600_000


def confirmed(job: GitHubJob, now: Instant) -> GitHubJob:
    """The job after GitHub has confirmed its state."""
    changes: dict[str, Any] = {"checked_at": now, "missing_since": 0}
    if job.missing_since or job.blocked_until <= now:
        changes |= {"blocked": "", "blocked_until": 0}
    return msgspec.structs.replace(job, **changes)


def missing(job: GitHubJob, now: Instant, reason: str) -> GitHubJob:
    """The job after GitHub has answered that it does not know it: it gets no runner until GitHub does."""
    changes: dict[str, Any] = {"checked_at": now, "missing_since": job.missing_since or now, "blocked": reason}
    return msgspec.structs.replace(job, blocked_until=now + MISSING_MS, **changes)


def is_ended_by_absence(job: GitHubJob, now: Instant) -> bool:
    """Whether GitHub has not known the job for so long that it counts as ended."""
    return bool(job.missing_since) and now - job.missing_since >= MISSING_MS


# What the manager has added to a job, which no event knows.
KEPT = ("tickets", "ticketed_at", "received_at", "queued_at", "checked_at", "profile")


class JobEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow_job event, or the answer of the API about a job, in the same words."""

    action: str  # queued, waiting, in_progress or completed
    job: GitHubJob  # as described by the event
    received_at: Instant = 0


def advance(known: GitHubJob | None, event: JobEvent) -> GitHubJob:
    """The job after the event. An event that is older than what is known changes nothing.

    A re-run has a new job id, so a completed job stays completed.
    """
    new = event.job
    if known is None:
        return _stamped(new, event)
    if new.state.rank < known.state.rank or new.run_attempt < known.run_attempt:
        return known
    if new.state.rank == known.state.rank:
        return known if known.state.rank > 1 else _after_gate(known, new)
    kept = {name: getattr(known, name) for name in KEPT}
    if new.state is GitHubJobState.COMPLETED:
        kept |= {"started_at": known.started_at, "timeline": known.timeline}
        kept |= {name: getattr(new, name) or getattr(known, name) for name in ("runner_name", "runner_id")}
    return _stamped(msgspec.structs.replace(new, **kept), event)


def _after_gate(known: GitHubJob, new: GitHubJob) -> GitHubJob:
    """Queued or waiting: the later word of the gate counts; without one, the later arrival."""
    if new.gate_updated_at and known.gate_updated_at and new.gate_updated_at < known.gate_updated_at:
        return known
    # Also when the state stays: an earlier word of the gate may still be on its way.
    gate_updated_at = new.gate_updated_at or known.gate_updated_at
    return msgspec.structs.replace(known, state=new.state, gate_updated_at=gate_updated_at)


def _stamped(job: GitHubJob, event: JobEvent) -> GitHubJob:
    at = event.received_at
    stamps: dict[str, Any] = {"received_at": job.received_at or at, "queued_at": job.queued_at or at}
    if job.state is GitHubJobState.IN_PROGRESS:
        stamps["started_at"] = job.started_at or at
    if job.state is GitHubJobState.COMPLETED:
        stamps["completed_at"] = job.completed_at or at
    return msgspec.structs.replace(job, **stamps)
