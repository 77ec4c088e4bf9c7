"""The executor of tickets: check that GitHub still wants a runner, register one, launch it, hand the ticket off."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

import msgspec
from uuid_utils import uuid7

from jobyard.domain.instant import Instant, after
from jobyard.domain.lease import Lease
from jobyard.domain.outcome import Failed, Handoff, Outcome, Snooze
from jobyard.domain.runners.github_job import GitHubJob
from jobyard.domain.runners.names import runner_name
from jobyard.domain.runners.profile import runner_labels
from jobyard.domain.runners.reasons import Reason
from jobyard.domain.runners.runner import Runner, RunnerState
from jobyard.domain.runners.settings import ManagerSettings
from jobyard.github.api import GitHubApi, JitConfig
from jobyard.github.clusters import Clusters
from jobyard.github.errors import (
    GitHubError,
    GitHubRateLimited,
    GitHubRejected,
    GitHubUnavailable,
    LaunchError,
    LaunchQuotaExceeded,
    LaunchRejected,
    LaunchUnavailable,
    RunnerNameTaken,
)
from jobyard.github.event_ingest import EventIngest
from jobyard.github.gates import ROOM_SECONDS, LaunchGates
from jobyard.github.launch import Launch, Stop
from jobyard.github.launcher import Instance, Launcher, LaunchRequest
from jobyard.github.limits import RunnerLimits
from jobyard.github.queued_check import QueuedCheck
from jobyard.github.runner_groups import RunnerGroups
from jobyard.github.tickets import MAX_ATTEMPTS, RETRY_SECONDS, payload_of
from jobyard.github.unregister import unregister
from jobyard.github.warm_runners import WarmRunners
from jobyard.ports.clock import Clock
from jobyard.ports.executor import Attempt

log = logging.getLogger("jobyard.runners")

# A quota does not change by itself: other runners, or other users of the namespace, must end first.
QUOTA_SECONDS = 30.0
# After a rejection a person has to change something; then the next full reconciliation tries again.
REJECTED_SECONDS = 3600.0
FAILED_SECONDS = 300.0
MAX_NAMES = 5


class RunnerExecutor:
    def __init__(
        self,
        settings: ManagerSettings,
        ingest: EventIngest,
        github: GitHubApi,
        launchers: Mapping[str, Launcher],
        clusters: Clusters,
        limits: RunnerLimits,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._jobs = ingest.jobs
        self._runners = ingest.runners
        self._tickets = ingest.tickets
        self._github = github
        self._launchers = launchers
        self._groups = RunnerGroups(github, clock)
        self._check = QueuedCheck(ingest, github, clock)
        self.warm = WarmRunners(settings, ingest, launchers, clock)
        self._gates = LaunchGates(ingest.runners, clusters, self.warm, limits, clock)
        self._clock = clock

    async def perform(self, attempt: Attempt) -> Outcome:
        lease = attempt.lease
        ticket = payload_of(lease)
        profile = self._settings.profile(ticket.profile)
        launcher = None if profile is None else self._launchers.get(profile.cluster)
        if profile is None or launcher is None:
            reason = Reason("rejected", f"The configuration has no profile {ticket.profile}, or not its cluster.")
            await self._block(ticket.job_id, reason, REJECTED_SECONDS)
            return Failed(message=str(reason), type="NoProfile", retry=False)
        launch = Launch(lease, ticket, profile, launcher)
        try:
            return await self._launch(launch)
        except Stop as stop:
            return stop.outcome
        except GitHubRateLimited as error:
            return await self._gates.close(launch, Reason("github_unavailable", str(error)), error.retry_after_seconds)
        except (GitHubUnavailable, LaunchUnavailable) as error:
            return await self._try_again(launch, error)
        except (GitHubRejected, LaunchRejected) as error:
            return await self._reject(launch, error)
        finally:
            self._gates.leave(lease.job_id)

    async def _launch(self, launch: Launch) -> Outcome:
        """Find an earlier attempt → pass the gates → choose a job → take a warm runner.

        If there is none: register → hand off → create.
        """
        if (name := await self._earlier_attempt(launch)) is not None:
            return Handoff(name)
        has_room = await self._gates.enter(launch)
        job = await self._check.choose_job(launch)
        group_id = await self._group_for(launch, job)
        if (outcome := await self._take_warm(launch, job, group_id)) is not None:
            return outcome
        if not has_room:
            return Snooze(ROOM_SECONDS)
        runner, jit = await self._register(launch, job, group_id)
        return await self._create(launch, job, runner, jit)

    # An earlier attempt of the same ticket, whose worker was lost

    async def _earlier_attempt(self, launch: Launch) -> str | None:
        """The runner that an earlier attempt launched, if it is there; what is left of others is removed."""
        for runner in await self._runners.of_ticket(launch.ticket.org_name, launch.lease.job_id):
            launcher = self._launchers.get(runner.cluster, launch.launcher)
            instance = await launcher.get(runner.name, runner.namespace)
            if instance is not None and instance.holds_slot:
                await self._mark_created(runner.name, launch.lease, instance)
                return runner.name
            if instance is None and await unregister(self._github, runner):
                await self._runners.remove(runner.name)
        return None

    # A warm runner

    async def _take_warm(self, launch: Launch, job: GitHubJob, group_id: int) -> Outcome | None:
        runner = await self.warm.assign(
            launch.launcher, launch.lease, launch.profile, job, group_id, annotations_of(job)
        )
        if runner is None:
            return None
        return Handoff(runner.name) if runner.state is not RunnerState.TERMINATING else Snooze(ROOM_SECONDS)

    # Registration

    async def _group_for(self, launch: Launch, job: GitHubJob) -> int:
        if job.owner_is_user:
            return self._groups.DEFAULT_ID
        found = await self._groups.find(job.org_name, launch.profile.runner_group, job.repo_full_name)
        if found.id is None:
            reason = Reason("group_not_visible", found.problem)
            await self._block(job.job_id, reason, FAILED_SECONDS)
            raise Stop(Failed(message=str(reason), type="RunnerGroup", retry=False))
        return found.id

    async def _register(self, launch: Launch, job: GitHubJob, group_id: int) -> tuple[Runner, JitConfig]:
        """Written down before and after: a process that dies in between leaves a trace for the reconciler."""
        labels = runner_labels(launch.profile, job.labels)
        for _ in range(MAX_NAMES):
            # Not numbered by the attempts, as a snooze counts as none: what a launch left behind keeps its name.
            name = runner_name(job.org_name, launch.lease.job_id, str(uuid7()))
            runner = Runner(
                name=name,
                org_name=job.org_name,
                repository=job.scope.repository,
                profile=launch.profile.name,
                cluster=launch.profile.cluster,
                namespace=launch.launcher.namespace_of(launch.profile),
                since=self._now(),
                ticket=launch.lease.key,
                requested_job_id=job.job_id,
                received_at=job.received_at,
                planned_at=self._now(),
            )
            if not await self._runners.create(runner):
                continue
            try:
                jit = await self._github.generate_jitconfig(
                    job.scope, name, group_id, labels, launch.profile.work_folder
                )
            except RunnerNameTaken:
                continue  # perhaps by a lost response; the reconciler removes it with the record
            except (GitHubRateLimited, GitHubRejected):
                await self._runners.remove(name)
                raise
            at = self._now()

            def minted(known: Runner, at: Instant = at, runner_id: int = jit.runner_id) -> Runner:
                changed = msgspec.structs.replace(known, runner_id=runner_id, minted_at=at)
                return changed.to(RunnerState.MINTED, at)

            return await self._runners.change(name, minted) or runner, jit
        raise GitHubUnavailable(f"{MAX_NAMES} names for a runner of {job.org_name} are taken.")

    # Creation

    async def _create(self, launch: Launch, job: GitHubJob, runner: Runner, jit: JitConfig) -> Outcome:
        request = LaunchRequest(
            name=runner.name,
            profile=launch.profile,
            org_name=job.org_name,
            repository=job.scope.repository,
            ticket_id=launch.lease.job_id,
            jit=jit,
            requested_job_id=job.job_id,
            annotations=annotations_of(job),
        )
        # From here on the ticket keeps its slot, whatever happens to this process: the pod may exist.
        await self._tickets.hand_off(launch.lease, runner.name)
        try:
            async with asyncio.timeout(launch.profile.timeouts.minted / 2):
                instance = await launch.launcher.launch(request)
        except LaunchQuotaExceeded as error:
            await self._give_up(runner)
            return await self._gates.close(launch, Reason("quota_exceeded", str(error)), QUOTA_SECONDS)
        except LaunchRejected:
            await self._give_up(runner)
            await self._runners.change(runner.name, lambda known: msgspec.structs.replace(known, is_given_up=True))
            raise
        except TimeoutError:
            # A request may be under way. The reconciler decides, after all of the time-out.
            return Handoff(runner.name)
        except LaunchUnavailable:
            found = await self._find_created(launch, runner)
            if found is None:
                await self._give_up(runner)
                raise
            instance = found
        await self._mark_created(runner.name, launch.lease, instance)
        return Handoff(runner.name)

    async def _find_created(self, launch: Launch, runner: Runner) -> Instance | None:
        """The instance whose creation failed, if it was created after all."""
        try:
            return await launch.launcher.get(runner.name)
        except LaunchUnavailable as error:
            # The reconciler finds out later; until then the slot stays taken.
            log.warning("whether runner %s was created is not known: %s", runner.name, error)
            raise Stop(Handoff(runner.name)) from error

    async def _mark_created(self, name: str, lease: Lease, instance: Instance) -> None:
        await self._runners.change(name, lambda known: _created(known, lease, instance, self._now()))

    async def _give_up(self, runner: Runner) -> None:
        """Remove the registration of a runner that was not created.

        Its record stays until the reconciler, or the next attempt, removes it: if this process dies before the ticket
        is settled, only the record knows its key.
        """
        try:
            await unregister(self._github, runner)
        except GitHubError as error:
            log.warning("cannot remove runner %s from GitHub now: %s", runner.name, error)

    # Failures

    async def _try_again(self, launch: Launch, error: GitHubError | LaunchError) -> Outcome:
        """Retry 30 s later; after the last attempt the job is planned again by the next full reconciliation."""
        is_github = isinstance(error, GitHubError)
        if launch.lease.attempt >= MAX_ATTEMPTS:
            await self._block(launch.ticket.job_id, Reason("launch_failed", str(error)), FAILED_SECONDS)
        else:
            reason = Reason("github_unavailable" if is_github else "cluster_unavailable", str(error))
            await self._gates.note(launch, reason)
        after_seconds = getattr(error, "retry_after_seconds", None) or RETRY_SECONDS
        return Failed(message=str(error), type=type(error).__name__, retry_after_seconds=after_seconds)

    async def _reject(self, launch: Launch, error: GitHubError | LaunchError) -> Outcome:
        reason = Reason("rejected", str(error))
        await self._block(launch.ticket.job_id, reason, REJECTED_SECONDS)
        return Failed(message=str(error), type=type(error).__name__, retry=False)

    async def _block(self, job_id: int, reason: Reason, seconds: float) -> None:
        """Plan no tickets for the job for a while: each would fail in the same way."""
        until = after(self._now(), seconds)
        await self._jobs.change(
            job_id, lambda known: msgspec.structs.replace(known, blocked=str(reason), blocked_until=until)
        )

    def _now(self) -> Instant:
        return self._clock.now()


def _created(runner: Runner, lease: Lease, instance: Instance, now: Instant) -> Runner:
    changed = msgspec.structs.replace(runner, ticket=lease.key, uid=instance.uid, created_at=runner.created_at or now)
    return changed if runner.is_launched else changed.to(RunnerState.STARTING, now)


def annotations_of(job: GitHubJob) -> dict[str, str]:
    """Annotations that show operators which job the instance is for."""
    found: Sequence[tuple[str, str]] = (
        ("repository", job.repo_full_name),
        ("requested-job", job.job_name),
        ("requested-job-url", job.url),
        ("requested-labels", ",".join(job.labels)),
    )
    return {name: value for name, value in found if value}
