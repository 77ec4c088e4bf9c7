"""The runner manager: plan, reconcile and recover, at once when something happens and regularly in any case."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

import msgspec

from jobyard.domain.instant import Instant
from jobyard.domain.job import QueueSettings
from jobyard.domain.runners.github_job import GitHubJob, is_end_lost
from jobyard.domain.runners.plan import plan
from jobyard.domain.runners.settings import ManagerSettings
from jobyard.errors import JobyardError
from jobyard.github.api import GitHubApi
from jobyard.github.clusters import Clusters
from jobyard.github.confirmation import Confirmation
from jobyard.github.errors import GitHubError
from jobyard.github.event_ingest import EventIngest, StoredEvent, with_one_more_ticket
from jobyard.github.executor import RunnerExecutor
from jobyard.github.job_records import Effect, repository_of
from jobyard.github.launcher import Instance, Launcher
from jobyard.github.limits import RunnerLimits
from jobyard.github.reconciler import Reconciler
from jobyard.github.records import Collection
from jobyard.github.recovery import Recovery
from jobyard.github.singleton_tasks import SingletonTasks
from jobyard.github.tickets import QUEUE, ticket_of
from jobyard.github.warm_pool import WarmPool
from jobyard.github.warm_runners import is_warm
from jobyard.operations import queue_settings
from jobyard.operations.organizations import known_group
from jobyard.ports.admin_store import GroupInfo
from jobyard.ports.clock import Clock, SystemClock
from jobyard.ports.store import Store

log = logging.getLogger("jobyard.runners")

# How long the start waits for clusters to answer.
OBSERVE_SECONDS = 2.0
# Events within this time are handled together; a burst of webhooks must not cause a plan each.
COALESCE_SECONDS = 0.05
# A pass over a large backlog takes a while: the next one waits this many times as long, or the tick.
PLAN_SHARE = 3.0
# Runners that are reconciled at the same time.
SIDE_BY_SIDE = 10
# Jobs that wait longer than this are compared with GitHub.
CHECK_AFTER_SECONDS = 300.0
SCAN_SECONDS = 60.0
# How long after a start failed deliveries are looked for at each tick: those of the last seconds before it count as
# failed only after a while.
CATCH_UP_SECONDS = 20.0
# How long a replica keeps the check of late events to itself.
CONFIRMATION_SECONDS = 30.0
# How long a replica keeps the pool of warm runners to itself.
WARM_SECONDS = 15.0
# Limits of organizations as the configuration last declared them.
DECLARED_LIMITS = "jobyard.runners.declared_limits"
GROUP_PAGE = 1000


class RunnerManager:
    """Runs beside the worker that claims tickets with `executor`. Several replicas may run at once.

    The caller starts and stops `github`.
    """

    def __init__(
        self,
        store: Store,
        settings: ManagerSettings,
        github: GitHubApi,
        launchers: Mapping[str, Launcher],
        *,
        worker_id: str,
        ingest: EventIngest | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.settings = settings
        self.ingest = ingest or EventIngest(store, settings)
        self.github = github
        self.launchers = launchers
        clock = clock or SystemClock()
        self.limits = RunnerLimits(store, clock)
        clusters = Clusters(store, self.ingest.runners, launchers, clock)
        self.executor = RunnerExecutor(settings, self.ingest, github, launchers, clusters, self.limits, clock)
        self.reconciler = Reconciler(store, settings, self.ingest, github, launchers, clusters, clock, worker_id)
        self.recovery = Recovery(store, settings, self.ingest, github, clock)
        self.confirmation = Confirmation(self.ingest, github, clock)
        self._singletons = SingletonTasks(store, clock, worker_id)
        self.warm_pool = WarmPool(settings, self.ingest, launchers, clusters, self.executor.warm, self.limits, clock)
        self._store = store
        self._wake = asyncio.Event()
        self._wake_pool = asyncio.Event()
        self._plan_again_seconds = math.inf  # after the last plan
        self._doubtful: tuple[GitHubJob, ...] = ()
        self._has_doubtful = asyncio.Event()
        self.executor.warm.on_change = self._wake_pool.set
        self._changed: dict[str, tuple[Launcher, Instance]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self.ingest.on_received.append(self._received)

    async def start(self) -> None:
        await declare_queue(self._store, self.settings)
        for launcher in self.launchers.values():
            await launcher.start(self._observer_of(launcher))
        await self._until_observed()
        loops = (self._reconcile_loop, self._confirmation_loop, self._recovery_loop, self._warm_loop)
        self._tasks = [asyncio.create_task(loop(), name=f"jobyard-runners{loop.__name__}") for loop in loops]

    async def _until_observed(self) -> None:
        """Wait a moment for the clusters: a ticket that is claimed before they are known waits at a gate for longer."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(OBSERVE_SECONDS):
                # A launcher has no event for it; twenty looks a second are soon enough and cost nothing.
                while any(each.instances() is None for each in self.launchers.values()):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)

    async def stop(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for launcher in self.launchers.values():
            await launcher.stop()

    # What happens

    def wake(self) -> None:
        """Reconcile and plan soon: a limit was changed, or something else that the plan depends on."""
        self._wake.set()

    def _received(self, received: StoredEvent) -> None:
        effect, job = received.applied
        if effect is Effect.UNKNOWN:
            self.recovery.suspects[job.repo_full_name] = repository_of(job)
        if effect not in (Effect.UNCHANGED, Effect.UNSERVED):
            self.wake()

    def _observer_of(self, launcher: Launcher) -> Callable[[Instance], None]:
        def on_change(instance: Instance) -> None:
            self._changed[instance.name] = (launcher, instance)
            self._wake.set()
            if is_warm(instance):
                self._wake_pool.set()

        return on_change

    # Loops

    async def _reconcile_loop(self) -> None:
        loop = asyncio.get_running_loop()
        next_pass = next_tick = loop.time()
        is_due = False  # something happened since the last pass
        while True:
            await self._reconcile_changed()
            now = loop.time()
            if now >= next_tick or (is_due and now >= next_pass):
                self._plan_again_seconds = math.inf
                await self._guarded("reconciling", self.run_once())
                is_due = False
                tick, again, took = self.settings.tick_seconds, self._plan_again_seconds, loop.time() - now
                next_tick = loop.time() + seconds_to_tick(tick, again, took)
                next_pass = loop.time() + min(self.settings.full_seconds, PLAN_SHARE * took)
            until = min(next_tick, next_pass) if is_due else next_tick
            if await self._woken(max(0.0, until - loop.time())):
                is_due = True

    async def _reconcile_changed(self) -> None:
        """Side by side: the end of a runner takes several requests, and until then it keeps its slot."""
        changed, self._changed = self._changed, {}
        room = asyncio.Semaphore(SIDE_BY_SIDE)

        async def reconcile(launcher: Launcher, instance: Instance) -> None:
            async with room:
                await self._guarded("reconciling a runner", self.reconciler.instance_changed(launcher, instance))

        await asyncio.gather(*(reconcile(*each) for each in changed.values()))

    async def _woken(self, seconds: float) -> bool:
        """Whether something happened within that time."""
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return False
        await asyncio.sleep(COALESCE_SECONDS)
        self._wake.clear()
        return True

    async def run_once(self) -> None:
        """One pass: reconcile, then plan from what that found."""
        await self.reconciler.run_once()
        await self.plan_once()

    async def plan_once(self) -> None:
        now = await self._store.now()
        # In this order: `plan` knows which of the three may be older than the others.
        jobs, runners = await self.ingest.jobs.active(), await self.ingest.runners.all()
        tickets = [ticket_of(job) for job in await self.ingest.tickets.live()]
        for job in jobs:
            if is_end_lost(job, now):  # GitHub is asked once, with the others in doubt
                await self.ingest.jobs.change(job.job_id, lambda known: msgspec.structs.replace(known, in_doubt=True))
        if doubtful := tuple(job for job in jobs if job.in_doubt or is_end_lost(job, now)):
            self._doubtful = doubtful
            self._has_doubtful.set()
        planned = plan(jobs, runners, tickets, now)
        self._plan_again_seconds = (planned.again_at - now) / 1000 if planned.again_at else math.inf
        counted = [await self._count_ticket(job, now) for job in planned.add]
        added = [job for job in counted if job is not None]
        await self.ingest.tickets.add(added)
        withdrawn = await self.ingest.tickets.withdraw(planned.withdraw)
        if added or withdrawn:
            log.info("plan: %d tickets added, %d withdrawn", len(added), withdrawn)

    async def _count_ticket(self, planned: GitHubJob, now: Instant) -> GitHubJob | None:
        """The job with one more ticket; None if it has changed, or another replica was faster."""
        is_first = False

        def change(known: GitHubJob) -> GitHubJob:
            nonlocal is_first
            is_first = known.tickets == planned.tickets and known.state is planned.state
            return with_one_more_ticket(known, now) if is_first else known

        changed = await self.ingest.jobs.change(planned.job_id, change)
        return changed if is_first else None

    async def _confirmation_loop(self) -> None:
        """Apart from the other loops: after a loss of the store there may be many jobs, and GitHub may be slow."""
        while True:
            await self._has_doubtful.wait()
            self._has_doubtful.clear()
            await self._guarded("the check of late events", self._confirm())

    async def _confirm(self) -> None:
        if await self._singletons.hold("confirmation", CONFIRMATION_SECONDS):
            answered = await self.confirmation.run_once(self._doubtful)
            if answered:
                self.wake()  # otherwise the next tick tries again, so that a GitHub in trouble is not hammered

    async def _recovery_loop(self) -> None:
        settings, recovery, loop = self.settings, self.recovery, asyncio.get_running_loop()
        catching_up_until = loop.time() + CATCH_UP_SECONDS
        while True:
            # Deliveries failed while this process was not there, however recently one was looked for before that.
            is_catching_up = loop.time() < catching_up_until
            interval = 0.0 if is_catching_up else settings.redelivery_seconds
            await self._run_singleton("deliveries", interval, recovery.redeliver_failed)
            await self._run_singleton("full", settings.full_seconds, self.full_reconciliation)
            await self._run_singleton("scan", SCAN_SECONDS, recovery.scan_repositories)
            await self._run_singleton("check", SCAN_SECONDS, self._check_waiting)
            await self._guarded("the scan of suspects", recovery.scan_suspects())
            await asyncio.sleep(settings.tick_seconds)

    async def _warm_loop(self) -> None:
        while True:
            if self.warm_pool.is_used:
                await self._guarded("the warm pool", self._keep_warm())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.settings.tick_seconds):
                    await self._wake_pool.wait()
                    await asyncio.sleep(COALESCE_SECONDS)
            self._wake_pool.clear()

    async def _keep_warm(self) -> None:
        if await self._singletons.hold("warm", WARM_SECONDS * 2):
            await self.warm_pool.run_once()

    async def full_reconciliation(self) -> None:
        """Compare everything with GitHub and the clusters."""
        for part in ("scan", "check"):
            await self._singletons.take_turn(part, 0.0)  # it is done here
        await self.recovery.scan_repositories(every=True)
        await self._check_waiting()
        for launcher in self.launchers.values():
            await launcher.sweep()
        self.wake()

    async def _check_waiting(self) -> None:
        await self.recovery.check_waiting(older_than_seconds=CHECK_AFTER_SECONDS)

    async def _run_singleton(self, task: str, seconds: float, run: Callable[[], Awaitable[object]]) -> None:
        """Run it if no replica has begun it within these seconds."""

        async def if_due() -> None:
            if await self._singletons.take_turn(task, seconds):
                await run()

        await self._guarded(task, if_due())

    async def _guarded(self, what: str, step: Awaitable[None]) -> None:
        """A loop must not end: whatever failed is tried again by its next round."""
        try:
            await step
        except GitHubError as error:
            log.warning("%s failed: %s", what, error)
        except JobyardError as error:
            log.error("%s failed: %s", what, error)  # noqa: TRY400
        except Exception:
            log.exception("%s failed unexpectedly", what)


def seconds_to_tick(tick_seconds: float, again_seconds: float, took_seconds: float) -> float:
    """The time to the next pass that comes without an event: sooner than a tick if the plan wants to be made again.

    After a long pass that must wait as well: a large backlog would otherwise cause one pass right after another.

    >>> seconds_to_tick(60, math.inf, 0.1), seconds_to_tick(60, 4, 0.1), seconds_to_tick(60, 0.5, 2)
    (60, 4, 6.0)
    >>> seconds_to_tick(5, 0.5, 20)
    5
    """
    return min(tick_seconds, max(again_seconds, PLAN_SHARE * took_seconds))


async def declare_queue(store: Store, settings: ManagerSettings) -> None:
    """Bring the limits of the configuration into effect, except where an operator has changed them."""
    declared = QueueSettings(max_running=settings.max_total, max_per_group=settings.max_per_org)
    await queue_settings.declare(store, {QUEUE: declared})
    before = Collection(store, DECLARED_LIMITS, int)
    present = {group.name: group.limit async for group in _groups(store)}
    known = {await known_group(store, QUEUE, key): value async for key, value in before.walk()}
    limits = {await known_group(store, QUEUE, org): limit for org, limit in settings.org_limits.items()}
    for org in known.keys() | limits.keys():
        wanted = limits.get(org)
        if present.get(org) == known.get(org) and wanted != known.get(org):
            await store.set_limit(QUEUE, org, wanted)
        if wanted is None:
            await before.remove(org)
        elif wanted != known.get(org):
            await before.put(org, wanted)


async def _groups(store: Store) -> AsyncIterator[GroupInfo]:
    after: str | None = None
    while page := await store.groups(QUEUE, GROUP_PAGE, after):
        for group in page:
            yield group
        if len(page) < GROUP_PAGE:
            return
        after = page[-1].name
