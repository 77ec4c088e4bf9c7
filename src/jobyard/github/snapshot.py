"""Everything about runners as it is at one time, for people and for metrics."""

from __future__ import annotations

from functools import cached_property

import msgspec

from jobyard.domain.instant import Instant, after
from jobyard.domain.job import State
from jobyard.domain.runners.explain import Capacity, OrgCapacity, waiting_reasons
from jobyard.domain.runners.github_job import GitHubJob, RunnerScope
from jobyard.domain.runners.plan import Demand, Ticket
from jobyard.domain.runners.reasons import Reason
from jobyard.domain.runners.runner import Runner
from jobyard.domain.runners.settings import ManagerSettings
from jobyard.github.job_records import GitHubJobs
from jobyard.github.runner_records import Gate, RunnerRecords
from jobyard.github.tickets import KIND, QUEUE, RETRY_SECONDS, ticket_of
from jobyard.operations.queries import Queries
from jobyard.ports.admin_store import Filter, GroupInfo, QueueInfo
from jobyard.ports.store import Store

GROUP_PAGE = 1000
# A ticket whose launch failed waits this long for its next attempt; its gate ended at once.
RETRIED = frozenset({"github_unavailable", "cluster_unavailable"})


class RunnerSnapshot(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    now: Instant
    jobs: tuple[GitHubJob, ...]  # unfinished and served by a profile
    runners: tuple[Runner, ...]
    claimed: tuple[Ticket, ...]
    capacity: Capacity
    gates: dict[Demand, Reason]
    waiting_tickets: int

    @cached_property
    def reasons(self) -> dict[int, Reason]:
        """Why jobs wait, by job id."""
        return waiting_reasons(self.jobs, self.runners, self.claimed, self.capacity, self.gates, self.now)


async def read_snapshot(
    store: Store, settings: ManagerSettings, jobs: GitHubJobs, runners: RunnerRecords
) -> RunnerSnapshot:
    now = await store.now()
    queue = next((each for each in await store.queues() if each.name == QUEUE), None)
    groups = await _groups(store)
    # A worker that names no queues takes those of its application, never this one.
    has_manager = any(QUEUE in worker.queues and not worker.quiet for worker in await store.workers())
    gates = [gate for gate in await runners.gates() if _is_closed(gate, now)]
    running = Queries(store).walk(Filter(queue=QUEUE, states=(State.RUNNING,)))
    return RunnerSnapshot(
        now=now,
        claimed=tuple([ticket_of(job) async for job in running if job.kind == KIND]),
        runners=tuple(await runners.all()),
        jobs=tuple(await jobs.active()),
        capacity=_capacity(settings, queue, groups, has_manager=has_manager),
        gates={(_scope(gate.scope), gate.profile): Reason(gate.code, gate.message) for gate in gates},
        waiting_tickets=0 if queue is None else queue.waiting + queue.delayed,
    )


def _is_closed(gate: Gate, now: Instant) -> bool:
    return now < (after(gate.until, RETRY_SECONDS) if gate.code in RETRIED else gate.until)


def _scope(text: str) -> RunnerScope:
    owner, _, repository = text.partition("/")
    return RunnerScope(owner, repository or None)


def _capacity(
    settings: ManagerSettings, queue: QueueInfo | None, groups: list[GroupInfo], *, has_manager: bool
) -> Capacity:
    orgs = {
        group.name: OrgCapacity(
            limit=group.effective_limit, own_limit=group.limit, running=group.running, is_paused=group.paused
        )
        for group in groups
        if group.name is not None
    }
    if queue is None:  # no manager has declared it yet
        orgs = {name: OrgCapacity(limit=limit, own_limit=limit) for name, limit in settings.org_limits.items()}
        return Capacity(
            max_total=settings.max_total, max_per_org=settings.max_per_org, has_manager=has_manager, orgs=orgs
        )
    return Capacity(
        max_total=queue.settings.max_running,
        max_per_org=queue.settings.max_per_group,
        running=queue.running,
        is_paused=queue.paused,
        has_manager=has_manager,
        orgs=orgs,
    )


async def _groups(store: Store) -> list[GroupInfo]:
    found: list[GroupInfo] = []
    after_name: str | None = None
    while True:
        page = await store.groups(QUEUE, GROUP_PAGE, after_name)
        found += page
        if len(page) < GROUP_PAGE:
            return found
        after_name = page[-1].name
