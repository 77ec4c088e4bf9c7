"""Which slots are taken, according to the clusters, the records and the tickets combined."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from jobyard.domain.job import Job
from jobyard.domain.runners.runner import Runner
from jobyard.github.launcher import Instance
from jobyard.github.tickets import ticket_of


class Slot(NamedTuple):
    org_name: str  # empty: of a warm runner
    profile: str


def slots_in_use(instances: Sequence[Instance], warm: Iterable[Runner]) -> list[Slot]:
    """One for each instance that holds a slot, and for each warm runner that is being created by any replica.

    `warm` are the records of warm runners: their organization is known there before the cluster shows it.
    """
    records = {runner.name: runner for runner in warm}
    found = [
        Slot(
            instance.org_name or (records[instance.name].org_name if instance.name in records else ""), instance.profile
        )
        for instance in instances
        if instance.holds_slot
    ]
    names = {instance.name for instance in instances}
    found += [Slot("", each.profile) for each in records.values() if each.is_unassigned and each.name not in names]
    return found


def claimed_slots(instances: Sequence[Instance], claimed: Iterable[Job]) -> list[Slot]:
    """One for each claimed ticket whose instance is not seen.

    A launch is recorded first, by a claimed ticket or as a warm runner, and counts then what others have recorded: of
    two at the same time, at least one counts the other.
    """
    names = {instance.name for instance in instances}
    launched = {instance.ticket_id for instance in instances}
    unseen = [job for job in claimed if job.id not in launched and job.external_id not in names]
    return [Slot(ticket.scope.owner, ticket.profile) for ticket in map(ticket_of, unseen)]
