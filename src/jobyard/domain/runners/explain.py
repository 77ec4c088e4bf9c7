"""Why GitHub jobs wait for a runner, and how many runners the limits allow; from facts that were read at one time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from jobyard.domain.instant import Instant
from jobyard.domain.runners.github_job import GitHubJob, GitHubJobState
from jobyard.domain.runners.plan import Demand, Ticket, queued_by_demand, spare_by_demand
from jobyard.domain.runners.reasons import CODES, Reason
from jobyard.domain.runners.runner import Runner
from jobyard.domain.text import counted

# More organizations with a limit of their own are summed up.
MAX_NAMED = 5
TIMES = "\N{MULTIPLICATION SIGN}"


class OrgCapacity(msgspec.Struct, frozen=True, kw_only=True):
    """What an organization may run, and runs."""

    limit: int | None = None  # the one that applies: its own, or max_per_org; None: none
    own_limit: int | None = None
    running: int = 0  # admitted tickets: runners that hold a slot
    is_paused: bool = False


class Capacity(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of the queue `runners`, and how far they are used."""

    max_total: int | None = None
    max_per_org: int | None = None
    running: int = 0
    is_paused: bool = False
    has_manager: bool = True  # a live worker claims tickets
    orgs: Mapping[str, OrgCapacity] = {}

    def of(self, org: str) -> OrgCapacity:
        return self.orgs.get(org) or OrgCapacity(limit=self.max_per_org)

    def room_for(self, org: str) -> int | None:
        """How many more runners of the organization may start now; None: no limit."""
        own = self.of(org)
        limits = ((own.limit, own.running), (self.max_total, self.running))
        return min((max(0, limit - running) for limit, running in limits if limit is not None), default=None)


def waiting_reasons(
    github_jobs: Sequence[GitHubJob],
    runners: Sequence[Runner],
    claimed: Sequence[Ticket],
    capacity: Capacity,
    gates: Mapping[Demand, Reason],
    now: Instant,
) -> dict[int, Reason]:
    """Why each job that has no runner waits, by job id.

    `claimed` are the tickets that were admitted, `gates` what holds back the launches of a demand. Everything that is
    the same for a demand or an organization is worked out once.
    """
    found = {job.job_id: reason for job in github_jobs if (reason := own_reason(job, now)) is not None}
    busy = {job.runner_name for job in github_jobs if job.state is GitHubJobState.IN_PROGRESS}
    spare = spare_by_demand(runners, claimed, busy)
    coming: dict[Demand, list[Runner]] = defaultdict(list)
    for runner in runners:
        if runner.state.is_spare and runner.name not in busy:
            coming[runner.scope, runner.profile].append(runner)
    in_line: dict[str, list[tuple[GitHubJob, Demand]]] = defaultdict(list)
    for demand, jobs in queued_by_demand(github_jobs, now).items():
        covered = spare[demand]
        found |= starting_reasons(jobs[:covered], coming[demand])
        in_line[demand[0].owner] += [(job, demand) for job in jobs[covered:]]
    for org, waiting in in_line.items():
        waiting.sort(key=lambda each: each[0].order)
        held, room = limit_reason(org, capacity), capacity.room_for(org)
        for place, (job, demand) in enumerate(waiting):
            found[job.job_id] = held or gates.get(demand) or place_reason(org, place, room)
    return found


def own_reason(job: GitHubJob, now: Instant) -> Reason | None:
    """A reason that concerns this job alone."""
    if job.state is GitHubJobState.HELD_BACK:
        return general_reason("held_back")
    if job.state is not GitHubJobState.QUEUED:
        return None
    if job.profile is None:
        return Reason("no_profile", f"No runner profile has all labels of the job: {', '.join(job.labels) or 'none'}.")
    if job.in_doubt:
        return general_reason("checking")
    return Reason.parse(job.blocked) if job.blocked and now < job.blocked_until else None


def general_reason(code: str) -> Reason:
    """The reason without any numbers or names.

    >>> general_reason("no_manager")
    Reason(code='no_manager', sentence='No manager is running.')
    """
    meaning = CODES[code]
    return Reason(code, f"{meaning[0].upper()}{meaning[1:]}.")


def starting_reasons(jobs: Sequence[GitHubJob], runners: Sequence[Runner]) -> dict[int, Reason]:
    """The oldest jobs get the runners that are coming; which one gets which, GitHub decides."""
    ordered = sorted(runners, key=lambda runner: (runner.planned_at or runner.created_at, runner.name))
    found: dict[int, Reason] = {}
    for place, job in enumerate(jobs):
        sentence = "A runner for it is being launched."
        if place < len(ordered):
            runner = ordered[place]
            why = f" ({runner.reason})" if runner.reason else ""
            sentence = f"Runner {runner.name} is coming for it, or for another job: {runner.state}{why}."
        found[job.job_id] = Reason("starting", sentence)
    return found


def limit_reason(org: str, capacity: Capacity) -> Reason | None:
    """What holds back every launch of the organization."""
    own = capacity.of(org)
    if not capacity.has_manager:
        return Reason("no_manager", "No manager is running. Start `jobyard up` or `jobyard runners manager`.")
    if capacity.is_paused:
        return Reason("paused", "The queue runners is paused. Resume it: jobyard queues resume runners")
    if own.is_paused:
        return Reason("paused", f"{org} is paused. Resume it: jobyard groups resume runners {org}")
    if own.limit == 0:
        return Reason("org_blocked", f"The limit of {org} is 0. Change it: jobyard limits set runners {org} N")
    if own.limit is not None and own.running >= own.limit:
        return Reason("org_limit_reached", f"{own.running} of {own.limit} runners of {org} run.")
    if capacity.max_total is not None and capacity.running >= capacity.max_total:
        return Reason("total_limit_reached", f"{capacity.running} of {capacity.max_total} runners run in all.")
    return None


def place_reason(org: str, place: int, room: int | None) -> Reason:
    if room is None or place < room:
        return general_reason("next")
    return Reason("in_line", f"{counted(place, 'job')} of {org} {'goes' if place == 1 else 'go'} first.")


class Reach(NamedTuple):
    """How many runners the limits allow at the same time."""

    runners: int | None  # None: there is no limit
    sentence: str


def reach(capacity: Capacity, orgs: Iterable[str]) -> Reach:
    """How much of the total these organizations can use."""
    names = sorted(set(orgs))
    limits = [capacity.of(name).limit for name in names]
    known = [limit for limit in limits if limit is not None]
    wanted = sum(known) if len(known) == len(limits) else None
    found = min((each for each in (wanted, capacity.max_total) if each is not None), default=None)
    parts = limit_parts(capacity, names)
    total = _limit(capacity.max_total)
    if not parts:
        return Reach(0, f"No organization is known yet: each may run {_limit(capacity.max_per_org)} of {total}")
    at_most = "there is no limit" if found is None else f"at most {found:,} of {total} can run"
    return Reach(found, f"{' + '.join(parts)}: {at_most}")


def limit_parts(capacity: Capacity, names: Sequence[str]) -> list[str]:
    """The terms of the sum: organizations with a limit of their own, then the others together."""
    own = [name for name in names if capacity.of(name).own_limit is not None]
    others = len(names) - len(own)
    if len(own) > MAX_NAMED:
        total = sum(capacity.of(name).own_limit or 0 for name in own)
        parts = [f"{len(own):,} organizations with limits of their own {total:,}"]
    else:
        parts = [f"{name} {capacity.of(name).own_limit:,}" for name in own]
    if others:
        parts.append(f"{counted(others, 'organization')} {TIMES} {_limit(capacity.max_per_org)}")
    return parts


def _limit(limit: int | None) -> str:
    return "unlimited" if limit is None else f"{limit:,}"
