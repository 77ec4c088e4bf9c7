"""Jobs of GitHub Actions as the manager knows them: states only move forward, whatever order the events come in."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from jobyard.domain.instant import Instant


class GitHubJobState(StrEnum):
    """In the order in which they follow each other. A gate may close again: then QUEUED is followed by HELD_BACK."""

    # By GitHub, which says waiting, pending or requested: an environment gate, a concurrency group, max-parallel.
    HELD_BACK = "held_back"
    QUEUED = "queued"  # GitHub wants a runner for it
    IN_PROGRESS = "in_progress"  # a runner has it
    COMPLETED = "completed"  # kept for a while, so that late events are recognized

    @property
    def rank(self) -> int:
        return {"held_back": 1, "queued": 1, "in_progress": 2, "completed": 3}[self.value]

    @property
    def action(self) -> str:
        """The word of GitHub's event that leads to the state."""
        return "waiting" if self is GitHubJobState.HELD_BACK else self.value

    @classmethod
    def _missing_(cls, value: object) -> GitHubJobState | None:
        """Stores may contain jobs with the word that was used before."""
        return cls.HELD_BACK if value == "waiting" else None


# What GitHub calls the states in which a job must not get a runner yet.
HELD_BACK_STATUSES = frozenset({"waiting", "pending", "requested"})


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
    in_doubt: bool = False  # an event came late: GitHub is asked for its state before it gets a runner
    missing_since: Instant = 0  # GitHub has answered since then that it does not know the job
    queued_at: Instant = 0  # by GitHub's clock: the order of launch
    received_at: Instant = 0
    checked_at: Instant = 0  # when GitHub last confirmed that it is queued
    started_at: Instant = 0  # by GitHub's clock
    completed_at: Instant = 0  # by GitHub's clock
    runner_ended_at: Instant = 0  # its runner has ended, and no event has told yet that the job has
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
    changes: dict[str, Any] = {"checked_at": now, "missing_since": 0, "in_doubt": False, "runner_ended_at": 0}
    if job.missing_since or job.blocked_until <= now:
        changes |= {"blocked": "", "blocked_until": 0}
    return msgspec.structs.replace(job, **changes)


# GitHub tells of the end of a job within seconds of that of its runner. Shorter would cost a request for each job.
RUNNER_END_MS = 10_000


def is_end_lost(job: GitHubJob, now: Instant) -> bool:
    """Whether the event of its end is late: its runner ended a while ago."""
    is_running = job.state is GitHubJobState.IN_PROGRESS and not job.in_doubt
    return is_running and bool(job.runner_ended_at) and now - job.runner_ended_at >= RUNNER_END_MS


def without_runner(job: GitHubJob, runner_name: str, now: Instant) -> GitHubJob:
    """The job after its runner has ended."""
    if job.state is not GitHubJobState.IN_PROGRESS or job.runner_name != runner_name:
        return job
    return msgspec.structs.replace(job, runner_ended_at=now)


def missing(job: GitHubJob, now: Instant, reason: str) -> GitHubJob:
    """The job after GitHub has answered that it does not know it: it gets no runner until GitHub does."""
    changes: dict[str, Any] = {"checked_at": now, "missing_since": job.missing_since or now, "in_doubt": False}
    return msgspec.structs.replace(job, blocked=reason, blocked_until=now + MISSING_MS, **changes)


def is_ended_by_absence(job: GitHubJob, now: Instant) -> bool:
    """Whether GitHub has not known the job for so long that it counts as ended."""
    return bool(job.missing_since) and now - job.missing_since >= MISSING_MS


# An event that is older than this was redelivered, perhaps to an empty store: the job may have ended since. GitHub
# delivers within a few seconds; a shorter limit would cost requests for each job.
LATE_MS = 10_000

# The clocks of GitHub and of this machine may differ by this much.
CLOCK_SKEW_MS = 300_000

# What the manager has added to a job, which no event knows.
KEPT = ("tickets", "ticketed_at", "received_at", "queued_at", "checked_at", "profile")


class JobEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow_job event, or the answer of the API about a job, in the same words."""

    action: str  # queued, waiting, in_progress or completed
    job: GitHubJob  # as described by the event
    received_at: Instant = 0
    is_answer: bool = False  # of the API, so it is the present state


def advance(known: GitHubJob | None, event: JobEvent) -> GitHubJob:
    """The job after the event. An event that is older than what is known changes nothing.

    A re-run has a new job id, so a completed job stays completed.
    """
    new = _with_possible_times(event)
    if known is None:
        return _stamped(new, event)
    if event.is_answer and known.in_doubt:
        known = confirmed(known, event.received_at)
    if new.state.rank < known.state.rank or new.run_attempt < known.run_attempt:
        return known
    if new.state.rank == known.state.rank:
        return known if known.state.rank > 1 else _after_gate(known, new, is_answer=event.is_answer)
    kept = {name: getattr(known, name) for name in KEPT}
    if new.state is GitHubJobState.COMPLETED:
        kept |= {"started_at": new.started_at or known.started_at, "timeline": known.timeline}
        kept |= {name: getattr(new, name) or getattr(known, name) for name in ("runner_name", "runner_id")}
    return _stamped(msgspec.structs.replace(new, **kept), event)


def _after_gate(known: GitHubJob, new: GitHubJob, *, is_answer: bool) -> GitHubJob:
    """Queued or waiting: the API is right, then the later word of the gate.

    GitHub sends queued, waiting and queued again. A `waiting` that does not say when the gate spoke may be a late one,
    which must not hold the job back: the job stays queued, and GitHub is asked.
    """
    if new.gate_updated_at and known.gate_updated_at and new.gate_updated_at < known.gate_updated_at:
        return known
    goes_back = known.state is GitHubJobState.QUEUED and new.state is GitHubJobState.HELD_BACK
    if goes_back and not is_answer and new.gate_updated_at <= known.gate_updated_at:
        return msgspec.structs.replace(known, in_doubt=True)
    # Also when the state stays: an earlier word of the gate may still be on its way.
    gate_updated_at = new.gate_updated_at or known.gate_updated_at
    return msgspec.structs.replace(known, state=new.state, gate_updated_at=gate_updated_at)


def _stamped(job: GitHubJob, event: JobEvent) -> GitHubJob:
    """The job with the time of arrival where GitHub's own time is missing."""
    at = event.received_at
    stamps: dict[str, Any] = {"received_at": job.received_at or at, "queued_at": job.queued_at or at}
    if job.state is GitHubJobState.IN_PROGRESS:
        stamps["started_at"] = job.started_at or at
    if job.state is GitHubJobState.COMPLETED:
        stamps["completed_at"] = job.completed_at if job.completed_at >= (job.started_at or 1) else at
    elif not event.is_answer:
        stamps["in_doubt"] = at - (stamps.get("started_at") or stamps["queued_at"]) >= LATE_MS
    return msgspec.structs.replace(job, **stamps)


def _with_possible_times(event: JobEvent) -> GitHubJob:
    """The job without times that cannot be right: before the time that precedes them, or in the future."""
    job, latest = event.job, event.received_at + CLOCK_SKEW_MS
    started_at = job.started_at if job.queued_at <= job.started_at <= latest else 0
    completed_at = job.completed_at if max(job.queued_at, started_at) <= job.completed_at <= latest else 0
    return msgspec.structs.replace(job, started_at=started_at, completed_at=completed_at)
