"""Adoption: an instance without a record or a ticket gets them, after a crash or with an empty store.

The id and the token of an adopted ticket follow from the instance, so that any replica adopts it once, and settles it.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
from collections.abc import Container, Iterable, Mapping
from uuid import NAMESPACE_URL, uuid5

import msgspec

from jobyard.domain.job import Job, NewJob, State
from jobyard.domain.lease import LeaseKey
from jobyard.domain.runners.runner import Runner, RunnerState
from jobyard.domain.state import Transition
from jobyard.errors import BadInput, LeaseLost
from jobyard.github.event_ingest import EventIngest
from jobyard.github.launcher import Instance, Launcher
from jobyard.github.runner_events import RunnerEvents
from jobyard.github.tickets import KIND, MAX_ATTEMPTS, QUEUE, TicketPayload, adopted_uid
from jobyard.ports.store import Store

log = logging.getLogger("jobyard.runners")


class Adoption:
    def __init__(self, store: Store, ingest: EventIngest, events: RunnerEvents, worker_id: str) -> None:
        self._store = store
        self._runners = ingest.runners
        self._tickets = ingest.tickets
        self._organizations = ingest.organizations
        self._events = events
        self._worker_id = worker_id

    async def adopt_if_needed(
        self, launcher: Launcher, instance: Instance, records: dict[str, Runner], running: Mapping[str, Job]
    ) -> None:
        """Give the instance what it lacks; `records` is kept up to date. Raises LaunchError."""
        if not instance.uid:
            return  # it is being created
        if not instance.org_name:
            return  # a warm runner without a job, or whose organization the view does not show yet
        instance = msgspec.structs.replace(instance, org_name=await self._organizations.register(instance.org_name))
        runner = records.get(instance.name)
        if runner is None:
            if not instance.holds_slot:
                await launcher.remove(instance)
                return
            runner = runner_of(instance, launcher.name)
            if not await self._runners.create(runner):
                return
            records[instance.name] = runner
            log.warning("runner %s was not known; it is adopted from the cluster", instance.name)
        if not instance.holds_slot or _has_ticket(runner, instance, running):
            return
        if await self._was_claimed_meanwhile(runner, instance):
            return
        changed = await self._adopt(runner, instance)
        if changed is not None:
            records[instance.name] = changed
            self._events.tell("adopted", changed, "it had no ticket")

    async def _was_claimed_meanwhile(self, runner: Runner, instance: Instance) -> bool:
        """Whether its ticket runs by now: the tickets were read before the records and the instances."""
        known = await self._runners.get(runner.name)
        ticket_id = instance.ticket_id if known is None or known.ticket is None else known.ticket.job_id
        job = None if ticket_id is None else await self._store.get(ticket_id)
        return job is not None and job.state is State.RUNNING and job.external_id in (None, instance.name)

    async def _adopt(self, runner: Runner, instance: Instance) -> Runner | None:
        job, token = adopted_job(instance), adoption_token(instance.uid)
        try:
            key = (await self._store.adopt(job, self._worker_id, instance.name, token)).key
        except BadInput:
            known = await self._store.get(job.id)
            if known is None or known.state is not State.RUNNING:
                return None  # it was adopted before and has ended
            key = LeaseKey(job.id, known.sequence, token)
        return await self._runners.change(runner.name, lambda known: msgspec.structs.replace(known, ticket=key))

    async def settle_orphans(self, running: Iterable[Job], known: Container[str]) -> None:
        """End adopted tickets whose runner ended while they were adopted, so that no record knows them."""
        for job in running:
            uid = adopted_uid(job)
            if uid is None or job.external_id in known:
                continue
            transition = Transition(to=State.COMPLETED, result=b'{"reason":"its runner had ended"}')
            with contextlib.suppress(LeaseLost):
                await self._tickets.settle(LeaseKey(job.id, job.sequence, adoption_token(uid)), transition)


def _has_ticket(runner: Runner, instance: Instance, running: Mapping[str, Job]) -> bool:
    if runner.ticket is not None and runner.ticket.job_id in running:
        job = running[runner.ticket.job_id]
        return job.external_id in (None, instance.name)
    # A ticket that is being launched is handed off in a moment; if its worker died, its lease expires.
    claimed = running.get(instance.ticket_id or "")
    return claimed is not None and claimed.external_id is None


def runner_of(instance: Instance, cluster: str) -> Runner:
    """The record of an instance, from what is kept with it in the cluster."""
    return Runner(
        name=instance.name,
        org_name=instance.org_name,
        repository=instance.repository,
        profile=instance.profile,
        cluster=cluster,
        namespace=instance.namespace,
        state=RunnerState.STARTING,
        since=instance.created_at,
        runner_id=instance.runner_id,
        uid=instance.uid,
        requested_job_id=instance.requested_job_id,
        created_at=instance.created_at,
        running_at=instance.started_at or 0,
    )


def adopted_job(instance: Instance) -> NewJob:
    """The ticket of an instance that has none."""
    payload = TicketPayload(
        org_name=instance.org_name,
        profile=instance.profile,
        job_id=instance.requested_job_id or 0,
        repository=instance.repository,
        adopted_uid=instance.uid,
    )
    return NewJob(
        id=str(uuid5(NAMESPACE_URL, f"jobyard:runner:{instance.uid}")),
        kind=KIND,
        queue=QUEUE,
        group=instance.org_name,
        payload=msgspec.json.encode(payload),
        max_attempts=MAX_ATTEMPTS,
    )


def adoption_token(uid: str) -> str:
    """The token of the lease of an adopted ticket.

    >>> adoption_token("1f"), len(adoption_token("2f"))
    ('9c30e912a91a49b9', 16)
    """
    return hashlib.sha256(f"jobyard:runner:{uid}".encode()).hexdigest()[:16]
