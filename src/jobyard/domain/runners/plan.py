"""The plan: which tickets to add and to withdraw, so that every job that GitHub has queued gets a runner.

GitHub gives a runner to any job whose labels match, so a runner is not made for one job. Per scope and profile, the
waiting tickets must be as many as the jobs that GitHub still has queued beyond the runners that are not yet busy:

    waiting tickets = max(0, queued jobs - spare runners - tickets that are being launched)

How many of them are launched is decided elsewhere: max_total, the limits of organizations and profile.max_running are
enforced by `LaunchGates.enter` in github/gates.py, with the values that github/limits.py reads.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence, Set
from typing import NamedTuple, TypeAlias

import msgspec

from jobyard.domain.instant import Instant
from jobyard.domain.runners.github_job import GitHubJob, GitHubJobState, RunnerScope
from jobyard.domain.runners.runner import Runner


class Ticket(msgspec.Struct, frozen=True, kw_only=True):
    """A job of kind `runner`: the permission to launch one runner, once it is admitted."""

    id: str
    scope: RunnerScope
    profile: str
    job_id: int  # the GitHub job because of which it was made; GitHub decides which job its runner gets
    sequence: int = 0
    is_running: bool = False  # it was claimed: a runner is being launched, or exists


class RunnerPlan(NamedTuple):
    add: tuple[GitHubJob, ...]  # one ticket because of each, in this order
    withdraw: tuple[str, ...]  # ids of waiting tickets
    again_at: Instant = 0  # a job that is too new now may need a ticket from then on, though nothing happens; 0: none


# A ticket is inserted right after its job is recorded, perhaps by another process.
IN_FLIGHT_MS = 5_000

Demand: TypeAlias = tuple[RunnerScope, str]


def plan(
    github_jobs: Iterable[GitHubJob], runners: Iterable[Runner], tickets: Iterable[Ticket], now: Instant
) -> RunnerPlan:
    """Compare demand with supply; jobs that are blocked at `now` do not count.

    The three may have been read one after another, in this order, while things changed: a runner that a job names is
    busy, a job that a runner names is taken, and a ticket that was made a moment ago may not be listed yet.
    """
    tickets, runners, github_jobs = list(tickets), list(runners), list(github_jobs)
    waiting: dict[Demand, list[Ticket]] = defaultdict(list)
    for ticket in tickets:
        if not ticket.is_running:
            waiting[ticket.scope, ticket.profile].append(ticket)
    busy = {job.runner_name for job in github_jobs if job.state is GitHubJobState.IN_PROGRESS}
    taken = {runner.job_id for runner in runners}
    spare = spare_by_demand(runners, [ticket for ticket in tickets if ticket.is_running], busy)
    queued = queued_by_demand((job for job in github_jobs if job.job_id not in taken), now)
    add: list[GitHubJob] = []
    withdraw: list[str] = []
    again: list[Instant] = []
    for demand in queued.keys() | waiting.keys():
        jobs, held = queued.get(demand, []), waiting.get(demand, [])
        needed = max(0, len(jobs) - spare[demand])
        withdraw += surplus(held, jobs, needed)
        found = missing(held, [job for job in jobs if now - job.ticketed_at >= IN_FLIGHT_MS], needed)
        add += found
        if len(held) + len(found) < needed:
            again += [job.ticketed_at + IN_FLIGHT_MS for job in jobs if now - job.ticketed_at < IN_FLIGHT_MS]
    ordered = sorted(add, key=lambda job: job.order)
    return RunnerPlan(tuple(ordered), tuple(sorted(withdraw)), min(again, default=0))


class Uncovered(NamedTuple):
    """What a claimed ticket may launch a runner for."""

    job: GitHubJob | None
    may_follow: bool  # without a job: it is not certain that none needs the ticket, so it must look again


def uncovered(
    github_jobs: Iterable[GitHubJob], runners: Iterable[Runner], tickets: Iterable[Ticket], ticket: Ticket, now: Instant
) -> Uncovered:
    """Find the oldest job of the ticket's demand that neither a runner nor another ticket is for.

    Several tickets may look at the same time, in several processes: each counts the others, so no two of them take one
    job. A job is left alone for a moment after its ticket was made, and another claimed ticket may be withdrawn: until
    that is known the ticket must stay, as the job may have no other.
    """
    demand = (ticket.scope, ticket.profile)
    others = [each for each in tickets if each.id != ticket.id and (each.scope, each.profile) == demand]
    runners, github_jobs = [each for each in runners if _id(each) != ticket.id], list(github_jobs)
    busy = {job.runner_name for job in github_jobs if job.state is GitHubJobState.IN_PROGRESS}
    spare = spare_by_demand(runners, [each for each in others if each.is_running], busy)[demand]
    taken = {runner.job_id for runner in runners} | {each.job_id for each in others if not each.is_running}
    jobs = queued_by_demand((job for job in github_jobs if job.job_id not in taken), now).get(demand, [])
    free = [job for job in jobs if now - job.ticketed_at >= IN_FLIGHT_MS]
    if len(free) > spare:
        return Uncovered(free[0], may_follow=True)
    return Uncovered(None, may_follow=len(jobs) > spare_by_demand(runners, [], busy)[demand])


def queued_by_demand(github_jobs: Iterable[GitHubJob], now: Instant) -> dict[Demand, list[GitHubJob]]:
    """The jobs that want a runner, oldest first. Whether one in doubt does, is not known yet."""
    found: dict[Demand, list[GitHubJob]] = defaultdict(list)
    for job in github_jobs:
        is_blocked = bool(job.blocked) and now < job.blocked_until
        is_wanted = job.state is GitHubJobState.QUEUED and not job.in_doubt
        if is_wanted and job.profile is not None and not is_blocked:
            found[job.scope, job.profile].append(job)
    for jobs in found.values():
        jobs.sort(key=lambda job: job.order)
    return found


def spare_by_demand(
    runners: Sequence[Runner], running: Sequence[Ticket], busy: Set[str | None] = frozenset()
) -> Counter[Demand]:
    """Runners that will take a job, and claimed tickets that have no runner yet.

    The registration of a launch that was given up is not a runner: its ticket waits again.
    """
    claimed = {ticket.id for ticket in running}
    spare: Counter[Demand] = Counter(
        (runner.scope, runner.profile)
        for runner in runners
        if runner.state.is_spare and runner.name not in busy and (runner.is_confirmed or _id(runner) in claimed)
    )
    with_runner = {_id(runner) for runner in runners}
    spare.update((ticket.scope, ticket.profile) for ticket in running if ticket.id not in with_runner)
    return spare


def _id(runner: Runner) -> str | None:
    return None if runner.ticket is None else runner.ticket.job_id


def surplus(held: Sequence[Ticket], jobs: Sequence[GitHubJob], needed: int) -> list[str]:
    """Tickets beyond the need: first those whose job is no longer queued, then the newest."""
    count = len(held) - needed
    if count <= 0:
        return []
    queued = {job.job_id for job in jobs}
    ordered = sorted(held, key=lambda ticket: (ticket.job_id in queued, -ticket.sequence))
    return [ticket.id for ticket in ordered[:count]]


def missing(held: Sequence[Ticket], jobs: Sequence[GitHubJob], needed: int) -> list[GitHubJob]:
    """Jobs that need a ticket: first those that never had one, then the oldest."""
    count = needed - len(held)
    if count <= 0:
        return []
    have = {ticket.job_id for ticket in held}
    candidates = sorted((job for job in jobs if job.job_id not in have), key=lambda job: (job.tickets > 0, job.order))
    return candidates[:count]
