"""Warm runners: pods that run before there is a job. One is given to a ticket, and gets its configuration then."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

import msgspec

from jobyard.domain.job import Job, State
from jobyard.domain.lease import Lease
from jobyard.domain.runners.github_job import GitHubJob
from jobyard.domain.runners.profile import RunnerProfile, runner_labels
from jobyard.domain.runners.runner import Assignment, Runner, RunnerState
from jobyard.domain.runners.settings import ManagerSettings
from jobyard.errors import LeaseLost
from jobyard.github.errors import LaunchError
from jobyard.github.event_ingest import EventIngest
from jobyard.github.launcher import Instance, Launcher, Phase
from jobyard.ports.clock import Clock

log = logging.getLogger("jobyard.runners")


class WarmRunners:
    """What the executor of tickets does with warm runners. The pool starts them, and removes those that are unused."""

    def __init__(
        self, settings: ManagerSettings, ingest: EventIngest, launchers: Mapping[str, Launcher], clock: Clock
    ) -> None:
        self._settings = settings
        self._runners = ingest.runners
        self._tickets = ingest.tickets
        self._launchers = launchers
        self._clock = clock
        self.on_change: Callable[[], None] = lambda: None  # one was taken or removed

    async def known(self) -> tuple[list[Runner], list[Job]]:
        """The records of warm runners, and the running tickets; nothing is read if there are no warm runners."""
        if not self._settings.has_warm and not any(map(is_warm, self._instances())):
            return [], []
        runners = [runner for runner in await self._runners.all() if runner.warm_token]
        return runners, [job for job in await self._tickets.live() if job.state is State.RUNNING]

    def _instances(self) -> list[Instance]:
        return [instance for launcher in self._launchers.values() for instance in launcher.instances() or ()]

    # Assignment

    async def assign(
        self,
        launcher: Launcher,
        lease: Lease,
        profile: RunnerProfile,
        job: GitHubJob,
        group_id: int,
        annotations: dict[str, str],
    ) -> Runner | None:
        """Give a warm runner to the ticket, and hand the ticket off to it; None if none is there. Raises LeaseLost.

        It gets its configuration only after the ticket was handed off, which holds the slot, and after the cluster
        knows the organization, by which the runner is adopted if the store is lost. A runner for which that failed
        is returned as TERMINATING.
        """
        found = await self._take(launcher, lease, profile, job, group_id)
        if found is None:
            return None
        runner, instance = found
        self.on_change()
        try:
            await self._tickets.hand_off(lease, runner.name)
        except LeaseLost:
            await self._runners.change(runner.name, lambda known: _untaken(known, runner))
            raise
        is_written = await launcher.annotate(instance, annotations | _facts(runner, lease, job))
        changed = await self._runners.change(runner.name, lambda known: self._prepared(known, runner, ok=is_written))
        if is_written:
            self._runners.tell_assigned(runner.name)
        else:
            await self._remove_instance(launcher, instance)
        return changed or runner.to(RunnerState.TERMINATING, self._clock.now())

    async def _take(
        self, launcher: Launcher, lease: Lease, profile: RunnerProfile, job: GitHubJob, group_id: int
    ) -> tuple[Runner, Instance] | None:
        now = self._clock.now()
        assignment = Assignment(group_id=group_id, labels=runner_labels(profile, job.labels))

        def taken(known: Runner) -> Runner:
            if not _is_for(known, profile):
                return known
            return msgspec.structs.replace(
                known,
                org_name=job.org_name,
                repository=job.scope.repository,
                ticket=lease.key,
                requested_job_id=job.job_id,
                received_at=job.received_at,
                planned_at=now,
                assignment=assignment,
            ).to(RunnerState.ASSIGNED, now)

        for instance in available(profile, launcher.instances() or ()):
            runner = await self._runners.change(instance.name, taken)
            if runner is not None and runner.ticket == lease.key:
                return runner, instance
        return None

    def _prepared(self, known: Runner, taken: Runner, *, ok: bool) -> Runner:
        if known.state is not RunnerState.ASSIGNED or known.ticket != taken.ticket or known.assignment is None:
            return known  # it is being removed
        if ok:
            return msgspec.structs.replace(known, assignment=msgspec.structs.replace(known.assignment, is_ready=True))
        # The cluster may know the organization after all, so it cannot be used again.
        return known.to(RunnerState.TERMINATING, self._clock.now(), "the cluster was not told its organization")

    # Room

    async def make_room(self, profile: RunnerProfile, warm: Sequence[Runner]) -> bool:
        """Remove a warm runner that a job of this profile cannot take; whether one was removed."""
        records = {runner.name: runner for runner in warm if runner.state is RunnerState.WARM}
        for launcher in self._launchers.values():
            for instance in launcher.instances() or ():
                runner = records.get(instance.name)
                if runner is None or instance.is_terminating or _is_coming(instance, profile):
                    continue
                if await self.remove(launcher, runner, instance, "a job of another profile needs its slot"):
                    return True
        return False

    async def remove(self, launcher: Launcher, runner: Runner, instance: Instance | None, why: str) -> bool:
        """Remove a warm runner unless it was taken; the pool removes its record once it is gone."""
        now = self._clock.now()
        changed = await self._runners.change(
            runner.name,
            lambda known: known.to(RunnerState.TERMINATING, now, why) if known.state is RunnerState.WARM else known,
        )
        if changed is None or not changed.is_unassigned:
            return False
        log.info("warm runner %s is removed: %s", runner.name, why)
        self.on_change()
        if instance is not None:
            await self._remove_instance(launcher, instance)
        return True

    async def _remove_instance(self, launcher: Launcher, instance: Instance) -> None:
        try:
            await launcher.remove(instance)
        except LaunchError as error:  # it is removed later, because of its state
            log.warning("warm runner %s cannot be removed now: %s", instance.name, error)


def is_warm(instance: Instance) -> bool:
    return not instance.org_name


def available(profile: RunnerProfile, instances: Sequence[Instance]) -> list[Instance]:
    """Instances that may be warm runners which a job of the profile can take, oldest first."""
    found = (
        each
        for each in instances
        if is_warm(each) and each.profile == profile.name and each.phase is Phase.RUNNING and not each.is_terminating
    )
    return sorted(found, key=lambda each: (each.created_at, each.name))


def has_available(profile: RunnerProfile, instances: Sequence[Instance], warm: Sequence[Runner]) -> bool:
    names = {runner.name for runner in warm if _is_for(runner, profile)}
    return any(instance.name in names for instance in available(profile, instances))


def _is_for(runner: Runner, profile: RunnerProfile) -> bool:
    return runner.state is RunnerState.WARM and runner.profile_digest == profile.digest


def _is_coming(instance: Instance, profile: RunnerProfile) -> bool:
    """Whether the job can take it in a moment."""
    return instance.profile == profile.name and instance.phase is Phase.PENDING and instance.trouble is None


def _untaken(known: Runner, taken: Runner) -> Runner:
    if known.state is not RunnerState.ASSIGNED or known.ticket != taken.ticket:
        return known
    fields = ("org_name", "repository", "ticket", "requested_job_id", "received_at", "planned_at", "assignment")
    empty = Runner(name=known.name)
    fresh = msgspec.structs.replace(known, **{name: getattr(empty, name) for name in fields})
    return msgspec.structs.replace(fresh, state=RunnerState.WARM, since=known.created_at or known.since)


def _facts(runner: Runner, lease: Lease, job: GitHubJob) -> dict[str, str]:
    """By the keys of a pod's labels and annotations."""
    facts = {
        "org": runner.org_name,
        "registered-repository": runner.repository or "",
        "ticket": lease.job_id,
        "job-id": str(job.job_id),
    }
    return {key: value for key, value in facts.items() if value}
