"""The reconciler: compares runner records with the clusters and with GitHub, and settles what has ended.

The instances of the clusters are the truth about slots, and GitHub's events about which runner has which job. Every
step can be repeated by any replica: settlements are fenced, records change by compare-and-set, removals are idempotent.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Mapping

import msgspec

from jobyard.domain.instant import Instant
from jobyard.domain.job import Job, State
from jobyard.domain.runners.github_job import GitHubJob
from jobyard.domain.runners.runner import Runner, RunnerState, is_overdue, timeout_of
from jobyard.domain.runners.settings import ManagerSettings
from jobyard.github.adoption import Adoption
from jobyard.github.api import GitHubApi
from jobyard.github.clusters import Clusters
from jobyard.github.errors import GitHubError, LaunchError
from jobyard.github.event_ingest import EventIngest
from jobyard.github.launcher import Instance, Launcher, PendingCause, Phase
from jobyard.github.registrations import Registrations
from jobyard.github.runner_ends import CANNOT_START, RunnerEnds
from jobyard.github.runner_events import RunnerEvents
from jobyard.github.unregister import unregister
from jobyard.ports.clock import Clock
from jobyard.ports.store import Store

log = logging.getLogger("jobyard.runners")

# A runner that is not listed by GitHub may have been registered just now.
REGISTRATION_GRACE_MS = 30_000
WAITING_FOR_JOB = frozenset({RunnerState.NOT_ONLINE, RunnerState.IDLE})


class Reconciler:
    def __init__(
        self,
        store: Store,
        settings: ManagerSettings,
        ingest: EventIngest,
        github: GitHubApi,
        launchers: Mapping[str, Launcher],
        clusters: Clusters,
        clock: Clock,
        worker_id: str,
    ) -> None:
        self._settings = settings
        self._jobs = ingest.jobs
        self._runners = ingest.runners
        self._tickets = ingest.tickets
        self._github = github
        self._launchers = launchers
        self._clusters = clusters
        self._registrations = Registrations(github, clock)
        self._clock = clock
        self.events = RunnerEvents()
        self._adoption = Adoption(store, ingest, self.events, worker_id)
        self._ends = RunnerEnds(settings, ingest, github, self.events, clock)

    async def run_once(self) -> None:
        """Compare everything once."""
        jobs = await self._tickets.live()
        # The pool takes care of warm runners until they have an organization.
        records = {runner.name: runner for runner in await self._runners.all() if not runner.is_unassigned}
        running = {job.id: job for job in jobs if job.state is State.RUNNING}
        names, is_complete = set(records), True
        for launcher in self._launchers.values():
            instances = launcher.instances()
            if instances is None:
                is_complete = False
                continue  # nothing is known of this cluster, so nothing is concluded
            by_name = {instance.name: instance for instance in instances}
            names |= by_name.keys()
            await self._adopt(launcher, by_name, records, running)
            own = [runner for runner in records.values() if runner.cluster == launcher.name]
            await self._registrations.refresh(own)
            for runner in own:
                ticket = None if runner.ticket is None else running.get(runner.ticket.job_id)
                await self._guarded(runner, self._reconcile(launcher, runner, by_name.get(runner.name), ticket))
        if is_complete:
            await self._adoption.settle_orphans(running.values(), names)
            for runner in records.values():
                if runner.cluster not in self._launchers:
                    await self._guarded(runner, self._abandon(runner))

    async def instance_changed(self, launcher: Launcher, instance: Instance) -> None:
        """Act on one change at once; `run_once` would do the same a little later."""
        runner = await self._runners.get(instance.name)
        if runner is not None and runner.is_launched and not runner.is_unassigned:
            await self._guarded(runner, self._reconcile(launcher, runner, instance, None))

    async def _guarded(self, subject: Runner | Instance, step: Awaitable[None]) -> bool:
        """A runner that cannot be handled now is tried again by the next pass, and does not delay the others."""
        try:
            await step
        except (GitHubError, LaunchError) as error:
            log.warning("runner %s: %s", subject.name, error)
            return False
        return True

    # Adoption

    async def _adopt(
        self,
        launcher: Launcher,
        instances: Mapping[str, Instance],
        records: dict[str, Runner],
        running: Mapping[str, Job],
    ) -> None:
        done = []
        for instance in instances.values():
            await self._move(launcher, instance, records)
            step = self._adoption.adopt_if_needed(launcher, instance, records, running)
            done.append(await self._guarded(instance, step))
        if all(done):
            await self._clusters.compared(launcher.name)

    async def _move(self, launcher: Launcher, instance: Instance, records: dict[str, Runner]) -> None:
        """Correct the record of an instance whose cluster has another name in the configuration now."""
        runner = records.get(instance.name)
        if runner is not None and runner.cluster not in self._launchers:
            changed = await self._runners.change(
                runner.name, lambda known: msgspec.structs.replace(known, cluster=launcher.name)
            )
            records[instance.name] = changed or runner

    async def _abandon(self, runner: Runner) -> None:
        """End a runner whose cluster is not configured any more, unless GitHub says that it has a job."""
        if await unregister(self._github, runner):
            await self._ends.finish(None, runner, None, f"cluster {runner.cluster} is not configured any more")

    # One runner

    async def _reconcile(
        self, launcher: Launcher, runner: Runner, instance: Instance | None, ticket: Job | None
    ) -> None:
        now = self._clock.now()
        if instance is None:
            instance = await self._find(launcher, runner, ticket, now)
        if instance is None or not instance.uid:
            return  # without a uid, this process is creating it: other replicas must not believe that it exists
        if instance.phase is Phase.ENDED:
            await self._ends.finish(launcher, runner, instance, instance.reason or "its container has ended")
            return
        state, reason = observed_state(runner, instance, self._registrations, now)
        changed = await self._observe(runner, instance, state, reason, now)
        if changed is None:
            return
        await self._annotate(launcher, changed, instance)
        if ticket is not None and ticket.cancel_requested is not None and changed.state is not RunnerState.BUSY:
            await self._ends.remove(launcher, changed, instance, ticket.cancel_requested)
            return
        await self._remove_if_stuck(launcher, changed, instance, now)

    async def _find(self, launcher: Launcher, runner: Runner, ticket: Job | None, now: Instant) -> Instance | None:
        """The instance of a runner that the view does not show; if there is none, the runner ends.

        It exists where no profile launches any more, after a change of the configuration.
        """
        if runner.is_launched:
            found = await launcher.get(runner.name, runner.namespace)
            if found is None:
                await self._ends.finish(launcher, runner, None, "its instance is gone")
            return found
        if runner.is_given_up and (runner.ticket is None or not await self._tickets.is_claimed(runner.ticket)):
            await self._ends.give_back(runner, None)
            return None
        is_being_launched = ticket is not None and ticket.external_id is None
        if is_being_launched or not is_overdue(runner, self._settings.timeouts_of(runner.profile), now):
            return None
        found = await launcher.get(runner.name, runner.namespace)
        if found is None:
            await self._ends.give_back(runner, ticket)
        return found

    async def _remove_if_stuck(self, launcher: Launcher, runner: Runner, instance: Instance, now: Instant) -> None:
        timeouts = self._settings.timeouts_of(runner.profile)
        if instance.trouble is PendingCause.INVALID:
            why = f"{CANNOT_START}: {instance.reason}" if instance.reason else CANNOT_START
        elif self._registrations.is_gone(runner, now - REGISTRATION_GRACE_MS) and runner.state in WAITING_FOR_JOB:
            why = "its registration with GitHub is gone"
        elif is_overdue(runner, timeouts, now):
            limit = timeout_of(runner.state, timeouts)
            why = f"{runner.state} for more than {limit:g} s" + (f": {runner.reason}" if runner.reason else "")
            if runner.state is RunnerState.IDLE:
                await self._ends.remove(launcher, runner, instance, why)
                return
        else:
            return
        await self._ends.remove(launcher, runner, instance, why, failed=True)

    async def _observe(
        self, runner: Runner, instance: Instance, state: RunnerState, reason: str, now: Instant
    ) -> Runner | None:
        """Write down a new state, with the time of the legs that it passed."""

        is_running = instance.started_at is not None

        def change(known: Runner) -> Runner:
            if known.state is not runner.state:
                return known  # an event of GitHub came in between: it is right
            # Kubernetes reports whole seconds, so each time may seem to be before the one that precedes it.
            created_at = known.created_at or max(instance.created_at or now, known.minted_at)
            stamps = {
                "uid": known.uid or instance.uid,
                "created_at": created_at,
                "running_at": known.running_at or max(instance.started_at or 0, created_at) * is_running,
            }
            if state in (RunnerState.IDLE, RunnerState.BUSY):
                stamps["online_at"] = known.online_at or now
            if state is RunnerState.BUSY:
                stamps["busy_at"] = known.busy_at or now
            return msgspec.structs.replace(known, **stamps).to(state, now, reason)

        changed = await self._runners.change(runner.name, change)
        if changed is not None and changed.state is not runner.state:
            self.events.tell(changed.state.value, changed, changed.reason)
        return changed

    async def _annotate(self, launcher: Launcher, runner: Runner, instance: Instance) -> None:
        """Show on the instance which job it runs: people look for that when they look at pods and costs."""
        if runner.job_id is None or runner.is_annotated:
            return
        job = await self._jobs.get(runner.job_id)
        if job is not None:
            await launcher.annotate(instance, executed_annotations(job))
        await self._runners.change(runner.name, lambda known: msgspec.structs.replace(known, is_annotated=True))


def observed_state(
    runner: Runner, instance: Instance, registrations: Registrations, now: Instant
) -> tuple[RunnerState, str]:
    """The state that the instance and GitHub's list of runners show."""
    if instance.is_terminating:
        return RunnerState.TERMINATING, runner.reason
    if runner.state in (RunnerState.TERMINATING, RunnerState.ASSIGNED):
        return runner.state, runner.reason
    if runner.state in (RunnerState.BUSY, RunnerState.ENDED):
        # Before the phase: the view of the cluster may be older than GitHub's event.
        is_gone = runner.state is RunnerState.BUSY and registrations.is_gone(runner, now - REGISTRATION_GRACE_MS)
        return (RunnerState.ENDED, "GitHub has removed its registration") if is_gone else (runner.state, "")
    if instance.phase is Phase.PENDING:
        match instance.trouble:
            case PendingCause.UNSCHEDULABLE:
                return RunnerState.UNSCHEDULABLE, instance.reason
            case PendingCause.IMAGE_ERROR:
                return RunnerState.IMAGE_ERROR, instance.reason
        return RunnerState.STARTING, instance.reason
    registered = registrations.get(runner)
    if registered is None or not registered.is_online:
        return (runner.state, "") if runner.state is RunnerState.IDLE else (RunnerState.NOT_ONLINE, "")
    return (RunnerState.BUSY if registered.is_busy else RunnerState.IDLE), ""


def executed_annotations(job: GitHubJob) -> dict[str, str]:
    found = {
        "executed-job-id": str(job.job_id),
        "executed-job": job.job_name,
        "executed-run-id": str(job.run_id),
        "executed-repository": job.repo_full_name,
        "executed-job-url": job.url,
    }
    return {name: value for name, value in found.items() if value}
