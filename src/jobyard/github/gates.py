"""Launch throttling: the checks between admission and launch. A ticket that waits for one keeps its place.

Admission counts tickets. Here instances are counted, as some of them may have no ticket: those that were found after a
restart with an empty store and are not adopted yet, and warm runners.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

from jobyard.domain.instant import Instant
from jobyard.domain.job import Job
from jobyard.domain.outcome import Outcome, Snooze
from jobyard.domain.runners.github_job import RunnerScope
from jobyard.domain.runners.reasons import Reason
from jobyard.domain.runners.runner import Runner
from jobyard.github.clusters import Clusters, Recorded
from jobyard.github.launch import Launch, Stop
from jobyard.github.limits import RunnerLimits
from jobyard.github.runner_records import RunnerRecords
from jobyard.github.slots import Slot, claimed_slots, slots_in_use
from jobyard.github.warm_runners import WarmRunners, has_available
from jobyard.ports.clock import Clock

log = logging.getLogger("jobyard.runners")

# How long a ticket waits at a gate. Longer would leave free room unused; shorter would be a busy loop.
GATE_SECONDS = 5.0
# A warm runner that gives way is gone in a moment.
ROOM_SECONDS = 1.0
# A reason that lasts is logged again after this long.
TELL_AGAIN_MS = 60_000


class Count(NamedTuple):
    """Slots that are taken, beside the one of the ticket itself."""

    in_all: int
    of_org: int
    of_profile: int
    leaving: int  # warm runners that are being removed
    is_warm: bool  # a warm runner is there, so that no other slot is needed


class LaunchGates:
    def __init__(
        self, runners: RunnerRecords, clusters: Clusters, warm: WarmRunners, limits: RunnerLimits, clock: Clock
    ) -> None:
        self._runners = runners
        self._clusters = clusters
        self._warm = warm
        self._limits = limits
        self._clock = clock
        self._launching: dict[str, Slot] = {}  # launches of this process, by ticket
        self._told: dict[tuple[RunnerScope, str], tuple[str, Instant]] = {}  # the reason that was logged, and when

    async def enter(self, launch: Launch) -> bool:
        """Whether an instance may be created; if not, a warm runner may be there to be taken. Raises Stop.

        The launch counts until `leave`.
        """
        ticket, profile = launch.ticket, launch.profile
        await self._raise_if_closed(launch)
        recorded = await self._clusters.recorded()
        warm, claimed = await self._warm.known()
        # Admission has let the ticket pass. If the limits that were read a moment ago do not, they are read again.
        for is_fresh in (False, True):
            limits = await self._limits.read(ticket.org_name, fresh=is_fresh)
            # Nothing is awaited until the launch is counted: two at once must not both see the last place.
            found = self._count(launch, recorded, warm, claimed)
            if found is None:
                silent = ", ".join(self._clusters.silent())
                sentence = f"The runners cannot be counted, as these clusters do not answer: {silent}."
                reason = Reason("cluster_unavailable", sentence)
                raise Stop(await self.close(launch, reason, GATE_SECONDS))
            count = found
            has_room = profile.max_running is None or count.of_profile < profile.max_running
            if not has_room and not count.is_warm:
                sentence = f"{count.of_profile} of {profile.max_running} runners of profile {profile.name} run."
                raise Stop(await self.close(launch, Reason("profile_limit_reached", sentence), GATE_SECONDS))
            if count.of_org < limits.org and (count.in_all < limits.total or count.is_warm):
                self._launching[launch.lease.job_id] = Slot(ticket.org_name, ticket.profile)
                return has_room and count.in_all < limits.total
        if count.of_org >= limits.org:
            raise Stop(Snooze(GATE_SECONDS))
        has_made = count.in_all - count.leaving < limits.total or await self._warm.make_room(profile, warm)
        raise Stop(Snooze(ROOM_SECONDS if has_made else GATE_SECONDS))

    def leave(self, ticket_id: str) -> None:
        self._launching.pop(ticket_id, None)

    async def close(self, launch: Launch, reason: Reason, seconds: float) -> Outcome:
        """Let all launches of the same scope and profile wait."""
        ticket, now = launch.ticket, self._clock.now()
        await self._runners.close_gate(ticket.scope, ticket.profile, reason, now, seconds)
        # Each waiting ticket comes here again and again, as long as the reason lasts.
        told, at = self._told.get((ticket.scope, ticket.profile), ("", 0))
        if told != reason.code or now - at >= TELL_AGAIN_MS:
            self._told[ticket.scope, ticket.profile] = (reason.code, now)
            log.warning("%s, profile %s, waits %g s: %s", ticket.scope, ticket.profile, seconds, reason)
        return Snooze(seconds)

    async def note(self, launch: Launch, reason: Reason) -> None:
        """Show why a launch failed, without holding back others."""
        ticket = launch.ticket
        await self._runners.close_gate(ticket.scope, ticket.profile, reason, self._clock.now(), 0.0)

    async def _raise_if_closed(self, launch: Launch) -> None:
        gate = await self._runners.gate(launch.ticket.scope, launch.ticket.profile)
        now = self._clock.now()
        if gate is not None and gate.until > now:
            raise Stop(Snooze(max(0.1, (gate.until - now) / 1000)))

    def _count(
        self, launch: Launch, recorded: Recorded, warm: Sequence[Runner], claimed: Sequence[Job]
    ) -> Count | None:
        """None: the cluster of the launch does not answer, or the instances of another one are not known."""
        instances = self._clusters.instances(recorded)
        if instances is None or launch.launcher.instances() is None:
            return None
        slots = slots_in_use(instances, warm)
        # Launches of this process that no cluster shows yet.
        created = {instance.ticket_id for instance in instances}
        slots += [slot for ticket_id, slot in self._launching.items() if ticket_id not in created]
        # A warm runner has no ticket, so beside it all that were claimed count, also those of other processes.
        others = [job for job in claimed if job.id not in (launch.lease.job_id, *self._launching)]
        return Count(
            in_all=len(slots) + len(claimed_slots(instances, others)),
            of_org=sum(slot.org_name.casefold() == launch.ticket.org_name.casefold() for slot in slots),
            of_profile=sum(slot.profile == launch.profile.name for slot in slots),
            leaving=sum(each.is_terminating and each.holds_slot and not each.org_name for each in instances),
            is_warm=has_available(launch.profile, instances, warm),
        )
