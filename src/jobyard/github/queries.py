"""Read queries: runners, jobs and why they wait, organizations, limit usage."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable
from typing import Generic, NamedTuple, TypeVar

from jobyard.api.schemas.runners import (
    RunnerJobDetails,
    RunnerJobView,
    RunnerOrgList,
    RunnerOrgView,
    RunnerPodView,
    RunnerTotals,
)
from jobyard.domain.instant import rfc3339
from jobyard.domain.runners.explain import general_reason, own_reason, reach
from jobyard.domain.runners.github_job import GitHubJob, GitHubJobState
from jobyard.domain.runners.reasons import Reason
from jobyard.domain.runners.runner import Runner, RunnerState
from jobyard.domain.runners.settings import ManagerSettings
from jobyard.errors import BadInput, JobNotFound
from jobyard.github.job_records import GitHubJobs
from jobyard.github.runner_records import RunnerRecords
from jobyard.github.snapshot import RunnerSnapshot, read_snapshot
from jobyard.github.usage import OrgUsage, RunnerUsage
from jobyard.github.views import job_fields, job_timeline, job_view, pod_view
from jobyard.ports.store import Store

T = TypeVar("T")

# Lists that are read again and again, by pages and by several viewers, share one reading.
CACHE_SECONDS = 0.5
UNSERVED = "unserved"
JOB_STATES = ("held_back", "queued", "in_progress", UNSERVED)
# Sentences with counts of all organizations, which a restricted viewer must not learn.
WITH_TOTALS = frozenset({"total_limit_reached", "profile_limit_reached"})
# These codes hold back one job, until something is changed or a while has passed.
BLOCKED = frozenset({"rejected", "launch_failed", "group_not_visible", "not_visible"})


class RunnerPage(NamedTuple, Generic[T]):
    items: tuple[T, ...]
    cursor: str | None  # of the next page; None: this is the last one


class Viewer(NamedTuple):
    """The organizations that the caller may see; None: all, with the totals."""

    orgs: frozenset[str] | None = None

    def sees(self, org: str) -> bool:
        return self.orgs is None or org in self.orgs

    def reason(self, reason: Reason | None) -> Reason | None:
        is_hidden = self.orgs is not None and reason is not None and reason.code in WITH_TOTALS
        return general_reason(reason.code) if is_hidden and reason is not None else reason


EVERYTHING = Viewer()


class RunnerQueries:
    def __init__(self, store: Store, settings: ManagerSettings, *, cache_seconds: float = CACHE_SECONDS) -> None:
        self._store = store
        self._settings = settings
        self._jobs = GitHubJobs(store, settings.profiles)
        self._runners = RunnerRecords(store)
        self._usage = RunnerUsage(store)
        self._cache_seconds = cache_seconds
        self._cached: tuple[float, RunnerSnapshot] | None = None
        self._lock = asyncio.Lock()

    async def snapshot(self) -> RunnerSnapshot:
        async with self._lock:
            if self._cached is None or time.monotonic() - self._cached[0] >= self._cache_seconds:
                read = await read_snapshot(self._store, self._settings, self._jobs, self._runners)
                self._cached = (time.monotonic(), read)
            return self._cached[1]

    def refresh(self) -> None:
        """Read everything anew with the next question: something was changed here."""
        self._cached = None

    # Jobs

    async def jobs(
        self,
        *,
        org: str | None = None,
        state: str | None = None,
        profile: str | None = None,
        viewer: Viewer = EVERYTHING,
        limit: int = 50,
        cursor: str | None = None,
    ) -> RunnerPage[RunnerJobView]:
        """Unfinished jobs in the order of launch. `state`: one of JOB_STATES; "unserved": those without a profile."""
        if state is not None and state not in JOB_STATES:
            raise BadInput(f"The state must be one of {', '.join(JOB_STATES)}, not {state!r}.")
        if state == UNSERVED:
            found, known = await self._jobs.unserved(), {}
        else:
            snapshot = await self.snapshot()
            found, known = [job for job in snapshot.jobs if state is None or job.state.value == state], snapshot.reasons
        chosen = [
            job
            for job in found
            if viewer.sees(job.org_name)
            and (org is None or job.org_name.casefold() == org.casefold())
            and (profile is None or job.profile == profile)
        ]
        chosen.sort(key=lambda job: job.order)
        if cursor is not None:
            position = _position(cursor)
            chosen = [job for job in chosen if job.order > position]
        page = chosen[:limit]
        items = tuple(job_view(job, viewer.reason(known.get(job.job_id) or own_reason(job, 0))) for job in page)
        following = f"{page[-1].queued_at}.{page[-1].job_id}" if len(chosen) > limit else None
        return RunnerPage(items, following)

    async def job(self, job_id: int, viewer: Viewer = EVERYTHING) -> RunnerJobDetails | None:
        """One job with its timeline and explanation, also a finished or unserved one; None if it is not known."""
        job = await self._jobs.get(job_id)
        if job is None or not viewer.sees(job.org_name):
            return None
        snapshot = await self.snapshot()
        reason = snapshot.reasons.get(job_id) or own_reason(job, snapshot.now)
        reason = viewer.reason(reason if job.state.rank == 1 else None)
        runner = _runner_of(job, snapshot.runners)
        return RunnerJobDetails(
            **job_fields(job, reason),
            sentence=_sentence(job, reason),
            timeline=job_timeline(job, runner),
            runner=None if runner is None else pod_view(runner),
        )

    # Runners

    async def pods(
        self,
        *,
        org: str | None = None,
        state: RunnerState | None = None,
        viewer: Viewer = EVERYTHING,
        limit: int = 50,
        cursor: str | None = None,
    ) -> RunnerPage[RunnerPodView]:
        """Runners by name."""
        chosen = sorted(
            (
                runner
                for runner in (await self.snapshot()).runners
                if viewer.sees(runner.org_name)
                and (org is None or runner.org_name.casefold() == org.casefold())
                and (state is None or runner.state is state)
                and (cursor is None or runner.name > cursor)
            ),
            key=lambda runner: runner.name,
        )
        page = chosen[:limit]
        return RunnerPage(tuple(map(pod_view, page)), page[-1].name if len(chosen) > limit else None)

    # Organizations

    async def orgs(self, viewer: Viewer = EVERYTHING) -> RunnerOrgList:
        """Organizations with jobs, runners, a limit or use in this month, by name, and the totals."""
        snapshot = await self.snapshot()
        month = rfc3339(snapshot.now)[:7]
        usage = await self._usage_in(month)
        names = {job.org_name for job in snapshot.jobs} | snapshot.capacity.orgs.keys() | usage.keys()
        counts = _counts(snapshot)
        items = tuple(
            _org_view(name, snapshot, counts.get(name, Counter()), usage.get(name), month)
            for name in sorted(names)
            if viewer.sees(name)
        )
        totals = None if viewer.orgs is not None else await self._totals(snapshot, items)
        return RunnerOrgList(items=items, totals=totals)

    async def minutes_this_month(self) -> dict[str, float]:
        """Minutes by organization."""
        month = rfc3339(await self._store.now())[:7]
        return {name: usage.minutes.get(month, 0.0) for name, usage in (await self._usage_in(month)).items()}

    async def _usage_in(self, month: str) -> dict[str, OrgUsage]:
        return {each.org_name: each for each in await self._usage.all() if month in each.jobs}

    async def _totals(self, snapshot: RunnerSnapshot, orgs: Iterable[RunnerOrgView]) -> RunnerTotals:
        orgs, capacity = list(orgs), snapshot.capacity
        reachable = reach(capacity, (org.name for org in orgs))
        return RunnerTotals(
            max_total=capacity.max_total,
            max_per_org=capacity.max_per_org,
            running=capacity.running,
            waiting=sum(org.waiting for org in orgs),
            in_progress=sum(org.in_progress for org in orgs),
            unserved=len(await self._jobs.unserved()),
            reachable=reachable.runners,
            sentence=reachable.sentence,
            paused=capacity.is_paused,
            has_manager=capacity.has_manager,
        )


def job_not_found(job_id: int | str) -> JobNotFound:
    return JobNotFound(f"GitHub job {job_id} not found: no event of it was received, or it ended more than a week ago.")


def _position(cursor: str) -> tuple[int, int]:
    queued_at, _, job_id = cursor.partition(".")
    try:
        return int(queued_at), int(job_id)
    except ValueError:
        raise BadInput("The position in the list is invalid; start over.") from None


def _runner_of(job: GitHubJob, runners: Iterable[Runner]) -> Runner | None:
    """The runner that has the job; for a queued one, the runner that was launched because of it."""
    if job.runner_name:
        return next((runner for runner in runners if runner.name == job.runner_name), None)
    requested = (runner for runner in runners if runner.requested_job_id == job.job_id and runner.state.is_spare)
    return next(requested, None)


def _sentence(job: GitHubJob, reason: Reason | None) -> str:
    match job.state:
        case GitHubJobState.IN_PROGRESS:
            return f"It does not wait: it runs on {job.runner_name or 'a runner'}."
        case GitHubJobState.COMPLETED:
            return f"It does not wait: it has ended ({job.conclusion or 'without a conclusion'})."
    return "Nothing is known about it yet." if reason is None else reason.sentence


def _counts(snapshot: RunnerSnapshot) -> dict[str, Counter[str]]:
    """Jobs by reason code, or by state for those that have a runner, for each organization."""
    found: dict[str, Counter[str]] = {}
    for job in snapshot.jobs:
        reason = snapshot.reasons.get(job.job_id)
        found.setdefault(job.org_name, Counter())[job.state.value if reason is None else reason.code] += 1
    return found


def _org_view(
    name: str, snapshot: RunnerSnapshot, counts: Counter[str], usage: OrgUsage | None, month: str
) -> RunnerOrgView:
    own = snapshot.capacity.of(name)
    reasons = {code: count for code, count in sorted(counts.items()) if code != GitHubJobState.IN_PROGRESS}
    apart = ("starting", "held_back")
    return RunnerOrgView(
        name=name,
        limit=own.limit,
        own_limit=own.own_limit,
        paused=own.is_paused,
        running=own.running,
        starting=counts["starting"],
        in_progress=counts["in_progress"],
        waiting=sum(count for code, count in reasons.items() if code not in apart),
        held_back=counts["held_back"],
        blocked=sum(counts[code] for code in BLOCKED),
        reasons=reasons,
        minutes_this_month=0.0 if usage is None else round(usage.minutes.get(month, 0.0), 1),
        jobs_this_month=0 if usage is None else usage.jobs.get(month, 0),
    )
