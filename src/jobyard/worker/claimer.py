"""The claim loop: settle what finished and claim for the free slots, in one exchange with the store."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Iterable, Sequence

from jobyard.domain.events import Event, JobLeaseLost, JobReported, JobStarted
from jobyard.domain.job import Progress
from jobyard.domain.lease import Lease, LeaseKey
from jobyard.domain.outcome import Failed, Release
from jobyard.domain.state import Settlement, Transition, judge
from jobyard.errors import StoreError
from jobyard.operations.chart_writer import ChartTally
from jobyard.operations.store_backoff import StoreBackoff
from jobyard.ports.executor import Executor
from jobyard.ports.job_store import Exchange
from jobyard.ports.observer import Observer
from jobyard.ports.store import Store
from jobyard.worker.attempt import AttemptRuntime, JobAttempt
from jobyard.worker.child_ends import LocalChildEnds
from jobyard.worker.end_relay import EndRelay
from jobyard.worker.exchange_batch import ExchangeBatch, LongPollClaim, Outbox, PendingSettlement, settlement_events
from jobyard.worker.grant_age import GrantAge
from jobyard.worker.quarantine import SUSPECT_DEATHS, SuspectIsolation
from jobyard.worker.queue_selection import QueueSelection
from jobyard.worker.throughput import Throughput

log = logging.getLogger("jobyard.worker")

# A notification may get lost: a waiting claim is renewed after this long, or its job would never be found.
CLAIM_AGAIN_SECONDS = 1.0
# A worker past its shutdown grace gives up on a store that has failed for this long; its leases then expire.
GIVE_UP_SECONDS = 10.0
# More claims in one exchange would hold the store's write lock for too long.
MAX_CLAIMS = 500
# Below this a second exchange in flight would only cost more round trips.
LARGE_BATCH = 50


class EventEmitter:
    """Passes events to an observer without letting it stop the work."""

    def __init__(self, observer: Observer) -> None:
        self.observer = observer

    def __call__(self, event: Event) -> None:
        try:
            self.observer.observe(event)
        except Exception:
            log.exception("an observer failed on %s", type(event).__name__)


class Claimer:
    def __init__(
        self,
        store: Store,
        executor: Executor,
        emit: EventEmitter,
        worker_id: str,
        queues: Sequence[str],
        concurrency: int,
        lease_seconds: float,
        excluded_queues: Sequence[str] = (),
    ) -> None:
        self.attempts: dict[LeaseKey, JobAttempt] = {}
        self.throughput = Throughput()
        self.tally = ChartTally()
        self.last_exchange: float | None = None  # by time.monotonic; readiness checks its age
        self.handed_back = 0  # jobs that were returned to the store because the worker stops
        self.is_quiet = False
        self.is_stopping = False
        self.may_give_up = False  # the shutdown grace is over
        self._concurrency = concurrency
        self._large_batch = min(MAX_CLAIMS, max(LARGE_BATCH, concurrency // 2))
        # A store in another process works on one exchange while the jobs of the other run.
        self._may_overlap = store.is_remote and concurrency >= 2 * LARGE_BATCH
        self._queues = QueueSelection(store, queues, excluded_queues)
        self._lease_seconds = lease_seconds
        child_ends = LocalChildEnds(self._has_room)
        self._runtime = AttemptRuntime(worker_id, store, executor, self._finished, self._reported, emit, child_ends)
        self._emit = emit
        self._isolation = SuspectIsolation(self._exchange, self.attempts, emit)
        self._backoff = StoreBackoff(emit)
        self._grant_age = GrantAge()
        self._outbox = Outbox()
        self.end_relay = EndRelay(store, emit, child_ends)
        self._waiting_claim: LongPollClaim | None = None
        self._may_have_work = True  # the store may have jobs to claim now
        self._wake = asyncio.Event()
        self._overlap_wake = asyncio.Event()  # there may be enough for a second exchange

    def quiet(self) -> None:
        self.is_quiet = True
        self._end_waiting_claim()

    def stop(self) -> None:
        """Claim no more jobs, and end the loop when the running ones are settled."""
        self.is_stopping = True
        self._end_waiting_claim()
        self._wake.set()

    def release_all(self) -> None:
        """Cancel the running attempts and hand their jobs back."""
        for attempt in list(self.attempts.values()):
            self.handed_back += 1
            attempt.release()

    async def run(self) -> None:
        overlapping: asyncio.Task[None] | None = None
        if self._may_overlap:
            overlapping = asyncio.create_task(self._overlap_exchanges())
            overlapping.add_done_callback(log_failure)
        selecting: asyncio.Task[None] | None = None
        if self._queues.changes:
            selecting = asyncio.create_task(self._queues.keep_fresh())
            selecting.add_done_callback(log_failure)
        while not self.is_stopping or self.attempts or self._outbox.in_flight or self._has_leftovers():
            wanted = self._wanted()
            if self._should_exchange(wanted):
                await self.run_once(wanted)
            else:
                if wanted > 0 and self._waiting_claim is None and not self._outbox.in_flight:
                    self._leave_waiting_claim(wanted)
                await self._wake.wait()
                self._wake.clear()
        if self._waiting_claim is not None:
            self._waiting_claim.task.cancel()
        for beside in (overlapping, selecting):
            if beside is not None:
                beside.cancel()

    async def _overlap_exchanges(self) -> None:
        """Start a second exchange while one is in flight."""
        while True:
            await self._overlap_wake.wait()
            self._overlap_wake.clear()
            wanted = self._wanted()
            if self._outbox.in_flight and self._should_exchange(wanted):
                await self.run_once(wanted)
                self._wake.set()

    def _wanted(self) -> int:
        if self.is_stopping or self.is_quiet:
            return 0
        return max(0, min(self._free_slots(), self._large_batch if self._may_overlap else MAX_CLAIMS))

    def _has_room(self) -> bool:
        return len(self.attempts) < self._concurrency and not self.is_stopping and not self.is_quiet

    def _free_slots(self) -> int:
        waiting = 0 if self._waiting_claim is None else self._waiting_claim.wanted
        return self._concurrency - len(self.attempts) - waiting - self._outbox.reserved_slots()

    def _should_exchange(self, wanted: int) -> bool:
        claims = wanted if self._may_have_work else 0
        pending = len(self._outbox.pending)
        if not self._outbox.in_flight:
            return bool(pending or claims)
        # While the store fails, one exchange at a time: two would alternate forever and never let a worker stop.
        is_well = self._backoff.outage_seconds() == 0
        return self._may_overlap and is_well and max(pending, claims) >= self._large_batch

    def _has_leftovers(self) -> bool:
        gives_up = self.may_give_up and self._backoff.outage_seconds() > GIVE_UP_SECONDS
        return bool(self._outbox.pending or self._waiting_claim) and not gives_up

    def _exchange(
        self, settlements: Sequence[Settlement], wanted: int = 0, until: asyncio.Future[None] | None = None
    ) -> Awaitable[Exchange]:
        runtime = self._runtime
        return runtime.store.exchange(
            runtime.worker_id, settlements, self._queues.names, wanted, self._lease_seconds, until
        )

    async def run_once(self, wanted: int) -> None:
        """Settle what finished, and claim up to `wanted` jobs."""
        batch = self._outbox.next_batch(wanted)
        try:
            await self._send(batch)
        finally:
            self._outbox.in_flight.remove(batch)

    async def _send(self, batch: ExchangeBatch) -> None:
        settlements, wanted = batch.settlements, batch.wanted
        # Cleared before the exchange, so that a notification during it counts for the next one.
        has_room = self._may_overlap and self._free_slots() >= self._large_batch
        self._may_have_work = self._may_have_work and has_room
        if self._may_have_work:
            self._overlap_wake.set()
        asked_at = self._grant_age.now()
        try:
            response = await self._exchange([each.settlement for each in settlements], wanted)
        except Exception as error:
            self._may_have_work = True
            if settlements and not isinstance(error, StoreError):
                await self._settle_one_by_one(settlements)
            else:
                self._outbox.put_back(settlements)
                await self._back_off(error)
            return
        batch.settlements, batch.wanted = [], len(response.leases)
        # Ends before starts: an observer that follows one job sees its events in order.
        self._emit_settled(settlements, response)
        await self._handle(response, wanted, asked_at)

    async def _handle(self, response: Exchange, wanted: int, asked_at: float) -> None:
        self.last_exchange = time.monotonic()
        self._backoff.reset()
        if wanted > 0:
            # After a short response a waiting claim follows and looks at once, so no notification is missed.
            self._may_have_work = len(response.leases) == wanted

        async def start(leases: Sequence[Lease]) -> None:
            if response.now and self._is_old(self._grant_age.seconds(response.now, asked_at)) and leases:
                leases = await self._renew_late(leases)
            self.start(leases)

        if any(lease.deaths >= SUSPECT_DEATHS for lease in response.leases):
            await self._isolation.start(response.leases, start)
        else:
            await start(response.leases)
        for key, reason in response.cancelled:
            self.cancel(key, reason)

    async def _renew_late(self, leases: Sequence[Lease]) -> Sequence[Lease]:
        """The leases of a late response that still hold: the jobs of the others may run elsewhere by now."""
        runtime, now = self._runtime, self._grant_age.now
        until = now() + self._lease_seconds
        while leases and now() < until:
            asked_at = now()
            try:
                keys = [lease.key for lease in leases]
                extended = await runtime.store.extend(runtime.worker_id, keys, self._lease_seconds)
            except StoreError as error:
                await self._back_off(error)
                continue
            self._emit_lost(lease for lease in leases if lease.key in extended.lost)
            leases = [lease for lease in leases if lease.key not in extended.lost]
            if not self._is_old(now() - asked_at):
                return leases
            until = now() + self._lease_seconds  # this answer was late, too
        self._emit_lost(leases)  # unrenewed for as long as a lease lasts, they have expired
        return ()

    def _is_old(self, seconds: float) -> bool:
        return seconds > self._lease_seconds / 2

    def _emit_lost(self, leases: Iterable[Lease]) -> None:
        for lease in leases:
            self._emit(JobLeaseLost(lease))

    async def _settle_one_by_one(self, settlements: list[PendingSettlement]) -> None:
        """One of these settlements cannot be stored: it fails its job without holding up the others."""
        for number, each in enumerate(settlements):
            try:
                response = await self._exchange([each.settlement])
            except StoreError as error:
                self._outbox.put_back(settlements[number:])
                await self._back_off(error)
                return
            except Exception as error:
                failed = Failed(message=f"its outcome could not be stored: {error!r}"[:500], retry=False)
                replaced = Settlement(each.lease.key, judge(each.lease, failed, worker=self._runtime.worker_id))
                self._outbox.pending.append(PendingSettlement(each.lease, replaced, each.started))
                await self._back_off(error)
            else:
                self._emit_settled([each], response)

    async def _back_off(self, error: Exception) -> None:
        await asyncio.sleep(self._backoff.delay("exchanging jobs", error))

    def _emit_settled(self, settlements: Sequence[PendingSettlement], response: Exchange) -> None:
        each, refused = self._emit.observer.wants_each_job, set(response.refused)
        for event in settlement_events(settlements, refused, self.throughput, self.tally, each=each):
            self._emit(event)
        self.end_relay.settled(settlements, refused)

    # The claim that waits in the store

    def _leave_waiting_claim(self, wanted: int) -> None:
        """Without a job for the free slots, claim the next one as it arrives."""
        loop = asyncio.get_running_loop()
        until: asyncio.Future[None] = loop.create_future()
        timer = loop.call_later(CLAIM_AGAIN_SECONDS, self._end_waiting_claim)
        self._waiting_claim = LongPollClaim(wanted, until, loop.create_task(self._await_claim(wanted, until, timer)))

    def _end_waiting_claim(self) -> None:
        if self._waiting_claim is not None and not self._waiting_claim.until.done():
            self._waiting_claim.until.set_result(None)

    async def _await_claim(self, wanted: int, until: asyncio.Future[None], timer: asyncio.TimerHandle) -> None:
        asked_at = self._grant_age.now()
        try:
            response = await self._exchange((), wanted, until)
        except Exception as error:
            await self._back_off(error)
            self._may_have_work = True
        else:
            # The lease renewer must know that leases have arrived, although none of them runs yet.
            batch = ExchangeBatch([], len(response.leases))
            self._outbox.in_flight.append(batch)
            try:
                await self._handle(response, wanted, asked_at)
            finally:
                self._outbox.in_flight.remove(batch)
        finally:
            timer.cancel()
            self._waiting_claim = None
            self._wake.set()

    def start(self, leases: Sequence[Lease]) -> None:
        loop = asyncio.get_running_loop()
        for lease in leases:
            if self.is_stopping or self.is_quiet:
                # The claim was in flight when the worker was told to stop claiming: hand the job back untouched.
                self.handed_back += 1
                release = Settlement(lease.key, judge(lease, Release()))
                self._outbox.pending.append(PendingSettlement(lease, release, time.monotonic()))
                continue
            self.tally.started(lease.queue, lease.job_id, lease.attempt)
            if self._emit.observer.wants_each_job:
                self._emit(JobStarted(lease))
            attempt = JobAttempt(self._runtime, lease, loop)
            self.attempts[attempt.key] = attempt

    def _reported(self, lease: Lease, progress: Progress) -> None:
        if self._emit.observer.wants_each_job:
            self._emit(JobReported(lease, progress))

    def _finished(self, attempt: JobAttempt, transition: Transition | None) -> None:
        """An attempt ended; without a transition it has nothing to settle."""
        self.attempts.pop(attempt.key, None)
        if transition is not None:
            pending = self._outbox.pending
            settlement = Settlement(attempt.key, transition)
            # Taken from the attempt: the frames in its traceback refer to the attempt, which would be a cycle.
            raised, attempt.raised = attempt.raised, None
            pending.append(PendingSettlement(attempt.lease, settlement, attempt.started, attempt.awaits_commit, raised))
            if len(pending) == self._large_batch:
                self._overlap_wake.set()
        self._wake.set()

    def cancel(self, key: LeaseKey, reason: str) -> None:
        attempt = self.attempts.get(key)
        if attempt is not None:
            attempt.cancel(reason)

    def lose(self, key: LeaseKey) -> None:
        """The store no longer knows the lease."""
        attempt = self.attempts.get(key)
        # A completion that the handler's transaction committed looks the same, and must not stop the handler.
        if attempt is not None and not attempt.awaits_commit:
            self._emit(JobLeaseLost(attempt.lease))
            attempt.lose()

    # Read by the background thread

    def held_keys(self) -> list[LeaseKey]:
        """The leases to renew: a job's lease must not expire before its settlement is acknowledged."""
        return [*self.attempts, *self._outbox.keys()]

    def has_exchange_in_flight(self) -> bool:
        """Whether a response may have granted leases that are not in `held_keys` yet."""
        return bool(self._outbox.in_flight)


def log_failure(task: asyncio.Task[None]) -> None:
    """The claim loop ends when the worker stops, and never otherwise."""
    if not task.cancelled() and task.exception() is not None:
        log.critical("the claim loop failed; this worker claims no more jobs", exc_info=task.exception())
