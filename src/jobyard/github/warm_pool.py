"""The pool of warm runners: keeps as many per profile as configured, while the limits leave room for them.

One replica at a time does this. Warm runners count towards the total, and give way to jobs.
"""

from __future__ import annotations

import logging
import secrets
from collections import Counter
from collections.abc import Awaitable, Mapping

import msgspec
from uuid_utils import uuid7

from jobyard.domain.instant import Instant, after
from jobyard.domain.job import Job, State
from jobyard.domain.runners.names import warm_name
from jobyard.domain.runners.profile import RunnerProfile, RunnerTimeouts
from jobyard.domain.runners.runner import Runner, RunnerState, is_overdue
from jobyard.domain.runners.settings import ManagerSettings
from jobyard.github.clusters import Clusters
from jobyard.github.errors import LaunchError, LaunchUnavailable
from jobyard.github.event_ingest import EventIngest
from jobyard.github.launcher import Instance, Launcher, LaunchRequest, PendingCause, Phase
from jobyard.github.limits import RunnerLimits
from jobyard.github.slots import claimed_slots, slots_in_use
from jobyard.github.tickets import ticket_of
from jobyard.github.warm_delivery import hashed
from jobyard.github.warm_runners import WarmRunners, is_warm
from jobyard.ports.clock import Clock

log = logging.getLogger("jobyard.runners")

# After a warm runner that failed, the next one waits this long, and twice as long after each further failure.
FAILURE_SECONDS = 10.0
MAX_FAILURE_SECONDS = 600.0


def configuration_url(warm_url: str, name: str) -> str:
    """Where a warm runner asks for its configuration."""
    return f"{warm_url}/runners/{name}/configuration"


class WarmPool:
    def __init__(
        self,
        settings: ManagerSettings,
        ingest: EventIngest,
        launchers: Mapping[str, Launcher],
        clusters: Clusters,
        warm: WarmRunners,
        limits: RunnerLimits,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._runners = ingest.runners
        self._tickets = ingest.tickets
        self._launchers = launchers
        self._clusters = clusters
        self._warm = warm
        self._limits = limits
        self._clock = clock
        self._failures: Counter[str] = Counter()  # in a row, by profile
        self._not_before: dict[str, Instant] = {}
        self._may_have_records = True  # of an earlier configuration

    @property
    def is_used(self) -> bool:
        seen = (instance for launcher in self._launchers.values() for instance in launcher.instances() or ())
        return self._settings.has_warm or self._may_have_records or any(map(is_warm, seen))

    async def run_once(self) -> None:
        """Remove what is too old, failed or too much, then start what is missing."""
        # The instances first: whatever they show was recorded before.
        seen = {name: launcher.instances() for name, launcher in self._launchers.items()}
        records = {runner.name: runner for runner in await self._runners.all()}
        own = [runner for runner in records.values() if runner.is_unassigned]
        self._may_have_records = bool(own)
        for name, launcher in self._launchers.items():
            instances = seen[name]
            if instances is None:
                continue  # nothing is known of this cluster, so nothing is concluded
            by_name = {instance.name: instance for instance in instances}
            for runner in own:
                if runner.cluster == name:
                    await self._guarded(self._tend(launcher, runner, by_name.get(runner.name)))
            for instance in instances:
                if is_warm(instance) and instance.name not in records:
                    await self._guarded(self._remove_unknown(launcher, instance))
        for runner in own:
            if runner.cluster not in self._launchers:
                await self._runners.remove(runner.name)
        await self._remove_surplus()
        for profile in self._settings.profiles:
            await self._top_up(profile)

    async def _guarded(self, step: Awaitable[None]) -> None:
        """A runner that cannot be handled now is tried again by the next pass, and does not delay the others."""
        try:
            await step
        except LaunchError as error:
            log.warning("warm runners: %s", error)

    # Those that exist

    async def _tend(self, launcher: Launcher, runner: Runner, instance: Instance | None) -> None:
        now, timeouts = self._clock.now(), self._settings.timeouts_of(runner.profile)
        if instance is None:
            if not runner.uid and now - runner.since < timeouts.minted * 1000:
                return  # it is being created
            # Another place than those where profiles launch, after a change of the configuration.
            instance = await launcher.get(runner.name, runner.namespace)
        if instance is None:
            await self._forget(runner)
        elif runner.state is RunnerState.TERMINATING:
            if is_overdue(runner, timeouts, now):
                await launcher.remove(instance, force=True)
            elif not instance.is_terminating:
                await launcher.remove(instance)
        elif (failure := _failure(instance, timeouts, now)) is not None:
            if await self._warm.remove(launcher, runner, instance, failure):
                self._failed(runner.profile, failure)
        elif (reason := self._unwanted(runner, now)) is not None:
            await self._warm.remove(launcher, runner, instance, reason)
        elif instance.phase is Phase.RUNNING:
            self._failures.pop(runner.profile, None)

    async def _forget(self, runner: Runner) -> None:
        """Remove the record of an instance that is gone, unless it was taken."""
        if runner.state is RunnerState.WARM:
            self._failed(runner.profile, f"{runner.name} is gone")
            now = self._clock.now()
            changed = await self._runners.change(
                runner.name,
                lambda known: known.to(RunnerState.TERMINATING, now) if known.state is RunnerState.WARM else known,
            )
            if changed is None or not changed.is_unassigned:
                return
        await self._runners.remove(runner.name)

    def _unwanted(self, runner: Runner, now: Instant) -> str | None:
        profile = self._settings.profile(runner.profile)
        if profile is None or not profile.warm or profile.digest != runner.profile_digest:
            return "its profile was changed"
        if is_overdue(runner, profile.timeouts, now):
            return f"warm for more than {profile.timeouts.warm:g} s"
        return None

    async def _remove_unknown(self, launcher: Launcher, instance: Instance) -> None:
        """One without a record cannot be given a job: the hash of its token is lost."""
        if instance.is_terminating:
            return
        # The view may be old; an instance of an organization runs a job, and is adopted.
        found = await launcher.get(instance.name)
        if found is not None and is_warm(found) and await self._runners.get(instance.name) is None:
            log.warning("warm runner %s is not known; it is removed", instance.name)
            await launcher.remove(found)

    async def _remove_surplus(self) -> None:
        """Remove warm runners beyond the number of their profile, and those for which the limits leave no room."""
        warm = [runner for runner in await self._runners.all() if runner.state is RunnerState.WARM]
        if not warm:
            return
        counted = Counter(runner.profile for runner in warm)
        over = await self._over_total()
        for runner in sorted(warm, key=lambda each: each.since, reverse=True):
            profile = self._settings.profile(runner.profile)
            if over <= 0 and profile is not None and counted[runner.profile] <= profile.warm:
                continue
            launcher = self._launchers.get(runner.cluster)
            instances = None if launcher is None else launcher.instances()
            found = next((each for each in instances or () if each.name == runner.name), None)
            if launcher is None or found is None:
                continue
            if await self._warm.remove(launcher, runner, found, "there are too many"):
                counted[runner.profile] -= 1
                over -= 1

    async def _over_total(self) -> int:
        """How many more instances there are than the total allows, those that are leaving not counted."""
        instances = self._clusters.instances(await self._clusters.recorded())
        if instances is None:
            return 0
        staying = sum(each.holds_slot and not each.is_terminating for each in instances)
        return staying - await self._limits.total()

    # Those that are missing

    async def _top_up(self, profile: RunnerProfile) -> None:
        if not profile.warm or self._clock.now() < self._not_before.get(profile.name, 0):
            return
        launcher = self._launchers.get(profile.cluster)
        while launcher is not None:
            records = [runner for runner in await self._runners.all() if runner.is_unassigned]
            present = sum(each.profile == profile.name and each.state is RunnerState.WARM for each in records)
            if present >= profile.warm or not await self._has_room(profile, more=1):
                return
            if not await self._start(launcher, profile):
                return

    async def _has_room(self, profile: RunnerProfile, *, more: int = 0) -> bool:
        """Whether the limits have room for all that exist, that are being launched, and that could be launched now."""
        instances = self._clusters.instances(await self._clusters.recorded())
        if instances is None:
            return False
        tickets = await self._tickets.live()
        claimed = [job for job in tickets if job.state is State.RUNNING]
        waiting = [ticket_of(job) for job in tickets if job.state is not State.RUNNING]
        warm = [runner for runner in await self._runners.all() if runner.warm_token]
        used = slots_in_use(instances, warm) + claimed_slots(instances, claimed)
        of_profile = sum(slot.profile == profile.name for slot in used)
        of_profile += sum(ticket.profile == profile.name for ticket in waiting)
        if profile.max_running is not None and of_profile + more > profile.max_running:
            return False
        coming = await self._could_start(claimed, Counter(ticket.scope.owner for ticket in waiting))
        return len(used) + coming + more <= await self._limits.total()

    async def _could_start(self, claimed: list[Job], waiting: Counter[str]) -> int:
        """How many waiting tickets the limits of their organizations allow: slots are kept free for them."""
        running = Counter(ticket_of(job).scope.owner for job in claimed)
        return sum(
            [min(count, max(0, await self._limits.of_org(org) - running[org])) for org, count in waiting.items()]
        )

    async def _start(self, launcher: Launcher, profile: RunnerProfile) -> bool:
        """Start one. It is recorded before the slots are counted: another launch at the same time counts it then."""
        name, token, now = warm_name(profile.name, str(uuid7())), secrets.token_urlsafe(32), self._clock.now()
        runner = Runner(
            name=name,
            profile=profile.name,
            cluster=profile.cluster,
            namespace=launcher.namespace_of(profile),
            state=RunnerState.WARM,
            since=now,
            warm_token=hashed(token),
            profile_digest=profile.digest,
        )
        await self._runners.create(runner)
        if not await self._has_room(profile):
            await self._runners.remove(name)
            return False
        url = configuration_url(self._settings.warm_url, name)
        request = LaunchRequest(name=name, profile=profile, warm_url=url, warm_token=token)
        try:
            instance = await launcher.launch(request)
        except LaunchError as error:
            self._failed(profile.name, str(error))
            if not isinstance(error, LaunchUnavailable):  # then it may exist
                await self._runners.remove(name)
            return False
        created = {"uid": instance.uid, "created_at": instance.created_at or now}
        await self._runners.change(name, lambda known: msgspec.structs.replace(known, **created))
        log.info("warm runner %s of profile %s was started", name, profile.name)
        return True

    def _failed(self, profile: str, why: str) -> None:
        self._failures[profile] += 1
        seconds = min(MAX_FAILURE_SECONDS, FAILURE_SECONDS * 2 ** min(self._failures[profile] - 1, 10))
        self._not_before[profile] = after(self._clock.now(), seconds)
        log.warning("no warm runner of profile %s is started for %g s: %s", profile, seconds, why)


def _failure(instance: Instance, timeouts: RunnerTimeouts, now: Instant) -> str | None:
    """Why an instance is of no use any more, or never will be."""
    if instance.phase is Phase.ENDED or instance.is_terminating:
        return instance.reason or "it has ended"
    if instance.phase is not Phase.PENDING:
        return None
    limits = {
        PendingCause.UNSCHEDULABLE: timeouts.unschedulable,
        PendingCause.IMAGE_ERROR: timeouts.image_error,
        PendingCause.INVALID: 0.0,
    }
    limit = timeouts.starting if instance.trouble is None else limits[instance.trouble]
    if now - instance.created_at < limit * 1000:
        return None
    return f"not started for more than {limit:g} s" + (f": {instance.reason}" if instance.reason else "")
