"""The worker: claim for free slots, run, settle and claim again in one trip."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Collection, Sequence

from jobyard.domain import events as e
from jobyard.domain.events import Event
from jobyard.domain.job import Progress
from jobyard.domain.lease import DEFAULT_LEASE_SECONDS, MAX_DEATHS, Lease, LeaseKey
from jobyard.domain.outcome import Failed, Release, Snooze
from jobyard.domain.state import Settlement, Transition, judge
from jobyard.errors import NotPossible, StoreError
from jobyard.operations.worker_control import Control
from jobyard.ports.executor import Executor
from jobyard.ports.job_store import Exchange
from jobyard.ports.observer import Companion, Observer
from jobyard.ports.schedule_store import WorkerInfo
from jobyard.ports.store import Store
from jobyard.worker.attempt import Run
from jobyard.worker.backoff import Trouble, tell_of_a_fault
from jobyard.worker.exchange_batch import Order, Parcel, Trip, news, overlap
from jobyard.worker.identity import worker_name
from jobyard.worker.lease_renewer import Keeper
from jobyard.worker.throughput import Pace

log = logging.getLogger("jobyard.worker")

# A trip carries at most this many claims: larger trips would hold the store's write lock for too long.
CLAIM_AT_ONCE = 500
# Even without a word from the store the worker looks again after this long.
LOOK_AGAIN_SECONDS = 1.0
# A job on its last chance that met another one here is due again after this long.
PUT_OFF_SECONDS = 1.0
# A worker that stops, past its grace, leaves a store that has been away for this long; the leases then run out.
GIVE_UP_SECONDS = 10.0


class Worker:
    def __init__(
        self,
        store: Store,
        executor: Executor,
        observer: Observer,
        *,
        queues: Sequence[str] = (),
        concurrency: int = 2,
        lease_seconds: float = DEFAULT_LEASE_SECONDS,
        shutdown_seconds: float = 30.0,
        name: str | None = None,
        companions: Sequence[Companion] = (),
    ) -> None:
        self.id = name or worker_name()
        self.store = store
        self.executor = executor
        self._observer = observer
        self._companions = companions
        self._queues = tuple(queues)
        self._concurrency = concurrency
        self._lease_seconds = lease_seconds
        self._shutdown_seconds = shutdown_seconds
        self._runs: dict[LeaseKey, Run] = {}
        self._last_chance: LeaseKey | None = None  # the latest job here whose next death would be its last
        self._outbox: list[Parcel] = []
        self._under_way: list[Trip] = []
        self._overlaps, self._large_trip = overlap(store, concurrency, CLAIM_AT_ONCE)
        self._claim_at_once = self._large_trip if self._overlaps else CLAIM_AT_ONCE
        self._wake = asyncio.Event()
        self._is_loaded = asyncio.Event()  # there may be enough for a second trip
        self._apart = asyncio.Lock()
        self._hurry = asyncio.Event()
        self._shutdown: asyncio.Task[None] | None = None
        self._hungry = True  # there may be something to claim
        self._stopping = False
        self._quiet = False
        self._over = asyncio.Event()
        self._order: Order | None = None  # a claim that waits in the store for something to claim
        self._main: asyncio.Task[None] | None = None
        self._keeper: Keeper | None = None
        self._handed_back = 0
        self._pace = Pace()
        self._trouble = Trouble(self.observe)
        self.last_exchange: float | None = None  # monotonic; health looks at its age

    # Start and stop

    async def start(self) -> None:
        if self._shutdown is not None:
            raise NotPossible("This worker has been stopped; make another one with yard.worker(…).")
        if self._main is None:
            self._started_at = await self.store.now()
            self._loop = asyncio.get_running_loop()
            for companion in self._companions:
                await companion.start()
            self._keeper = Keeper(self, self.store, self._lease_seconds, self._loop)
            self._keeper.start()
            self._main = self._loop.create_task(self._claim_loop())
            self._main.add_done_callback(tell_of_a_fault)
            self.observe(e.WorkerStarted(self.id, self._queues, self._concurrency))

    async def stop(self, timeout_seconds: float | None = None) -> None:
        """Take no more; let runs end for a while; then cancel them and hand them back.

        Safe twice; a second call with a shorter time hurries the first.
        """
        if self._main is None:
            return
        grace = self._shutdown_seconds if timeout_seconds is None else timeout_seconds
        if self._shutdown is None:
            self._shutdown = self._loop.create_task(self._shut_down(grace))
        self._loop.call_later(grace, self._hurry.set)
        await asyncio.shield(self._shutdown)

    async def _shut_down(self, grace: float) -> None:
        assert self._main is not None
        assert self._keeper is not None
        self._stopping = True
        self.observe(e.WorkerStopping(self.id, len(self._runs), grace))
        self._call_back_order()
        self._wake.set()
        hurry = self._loop.create_task(self._hurry.wait())
        try:
            await asyncio.wait([self._main, hurry], return_when=asyncio.FIRST_COMPLETED)
            for run in list(self._runs.values()):
                self._handed_back += 1
                run.release()
            await self._main
        finally:
            hurry.cancel()
            await self._keeper.stop()
            for companion in self._companions:
                await companion.stop()
        self.observe(e.WorkerStopped(self.id, self._handed_back))
        self._over.set()

    async def stopped(self) -> None:
        """Returns once the worker has stopped, whoever asked it to."""
        await self._over.wait()

    async def __aenter__(self) -> Worker:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # The claim loop

    async def _claim_loop(self) -> None:
        second: asyncio.Task[None] | None = None
        if self._overlaps:
            second = self._loop.create_task(self._second_lane())
            second.add_done_callback(tell_of_a_fault)
        while not self._stopping or self._runs or self._under_way or self._has_left_overs():
            wanted = self._wanted()
            if self._may_leave(wanted):
                await self.run_once(wanted)
            else:
                if wanted > 0 and self._order is None and not self._under_way:
                    self._leave_order(wanted)
                await self._wake.wait()
                self._wake.clear()
        if self._order is not None:
            self._order.task.cancel()
        if second is not None:
            second.cancel()

    async def _second_lane(self) -> None:
        """Trips that leave while another is under way."""
        while True:
            await self._is_loaded.wait()
            self._is_loaded.clear()
            wanted = self._wanted()
            if self._under_way and self._may_leave(wanted):
                await self.run_once(wanted)
                self._wake.set()

    def _wanted(self) -> int:
        return 0 if self._stopping or self._quiet else max(0, min(self._free_slots(), self._claim_at_once))

    def _may_leave(self, wanted: int) -> bool:
        claims = wanted if self._hungry else 0
        if not self._under_way:
            return bool(self._outbox or claims)
        # While the store is away one trip at a time tries: two would take turns for ever and never let a worker stop.
        is_well = self._trouble.seconds() == 0
        return self._overlaps and is_well and max(len(self._outbox), claims) >= self._large_trip

    def _has_left_overs(self) -> bool:
        gives_up = self._hurry.is_set() and self._trouble.seconds() > GIVE_UP_SECONDS
        return bool(self._outbox or self._order) and not gives_up

    def _free_slots(self) -> int:
        ordered = 0 if self._order is None else self._order.wanted
        return self._concurrency - len(self._runs) - ordered - sum(trip.wanted for trip in self._under_way)

    async def run_once(self, wanted: int) -> None:
        """One trip: settle what finished, claim for the free slots."""
        trip = Trip(self._outbox, wanted)
        self._outbox = []
        self._under_way.append(trip)
        try:
            await self._travel(trip)
        finally:
            self._under_way.remove(trip)

    async def _travel(self, trip: Trip) -> None:
        batch, wanted = trip.batch, trip.wanted
        # Claims are asked for anew, so a word that comes meanwhile counts for the next trip.
        self._hungry = self._hungry and self._overlaps and self._free_slots() >= self._large_trip
        if self._hungry:
            self._is_loaded.set()
        try:
            answer = await self.store.exchange(
                self.id, [parcel.settlement for parcel in batch], self._queues, wanted, self._lease_seconds
            )
        except Exception as error:
            self._hungry = True
            if batch and not isinstance(error, StoreError):
                await self._settle_apart(batch)
            else:
                self._outbox = batch + self._outbox
                await self._trouble.nap("exchanging jobs", error)
            return
        trip.batch, trip.wanted = [], len(answer.leases)
        # First what ended, then what begins: who follows a job hears it in that order.
        self._record(batch, answer)
        await self._take(answer, wanted)

    async def _take(self, answer: Exchange, wanted: int) -> None:
        self.last_exchange = time.monotonic()
        self._trouble.is_over(self.last_exchange)
        if wanted > 0:
            # After a short answer an order is left, and that looks at once: no word that came meanwhile is missed.
            self._hungry = len(answer.leases) == wanted
        if any(lease.deaths >= MAX_DEATHS - 1 for lease in answer.leases):
            async with self._apart:
                self._begin_all(await self._set_apart(answer.leases))
        else:
            self._begin_all(answer.leases)
        for key, reason in answer.cancelled:
            self._stop_run(key, reason)

    async def _settle_apart(self, batch: list[Parcel]) -> None:
        """One of these settlements is not what a store can take: it must not hold up the others."""
        for number, parcel in enumerate(batch):
            lease = parcel.lease
            try:
                answer = await self.store.exchange(self.id, [parcel.settlement], self._queues, 0, self._lease_seconds)
            except StoreError as error:
                self._outbox = batch[number:] + self._outbox
                await self._trouble.nap("exchanging jobs", error)
                return
            except Exception as error:
                plain = Failed(message=f"its outcome could not be stored: {error!r}"[:500], retry=False)
                replaced = Settlement(lease.key, judge(lease, plain, worker=self.id))
                self._outbox.append(Parcel(lease, replaced, parcel.started))
                await self._trouble.nap("exchanging jobs", error)
            else:
                self._record([parcel], answer)

    def _leave_order(self, wanted: int) -> None:
        """Nothing is there for the free slots: whatever comes next is claimed as it comes."""
        until: asyncio.Future[None] = self._loop.create_future()
        handle = self._loop.call_later(LOOK_AGAIN_SECONDS, self._call_back_order)
        task = self._loop.create_task(self._await_order(wanted, until, handle))
        self._order = Order(wanted, until, task)

    def _call_back_order(self) -> None:
        if self._order is not None and not self._order.until.done():
            self._order.until.set_result(None)

    async def _await_order(self, wanted: int, until: asyncio.Future[None], handle: asyncio.TimerHandle) -> None:
        try:
            answer = await self.store.exchange(self.id, (), self._queues, wanted, self._lease_seconds, until)
        except Exception as error:
            await self._trouble.nap("exchanging jobs", error)
            self._hungry = True
        else:
            # The keeper must know that leases have come, although none of them runs yet.
            trip = Trip([], len(answer.leases))
            self._under_way.append(trip)
            try:
                await self._take(answer, wanted)
            finally:
                self._under_way.remove(trip)
        finally:
            handle.cancel()
            self._order = None
            self._wake.set()

    async def _set_apart(self, leases: Sequence[Lease]) -> Sequence[Lease]:
        """Jobs whose next death would be their last run one at a time here, so that only the guilty one is put away.

        The others of them are put off, not held, before that one starts: it may take this process with it at once.
        """
        suspects = [lease for lease in leases if lease.deaths >= MAX_DEATHS - 1]
        put_off = suspects if self._last_chance in self._runs else suspects[1:]
        if put_off is not suspects:
            self._last_chance = suspects[0].key
        if put_off:
            later = Snooze(PUT_OFF_SECONDS)
            back = [Settlement(lease.key, judge(lease, later)) for lease in put_off]
            try:
                await self.store.exchange(self.id, back, self._queues, 0, self._lease_seconds)
            except Exception as error:
                # The store is away: to run them is better than to let them run out.
                self.observe(e.StoreFailed("putting off jobs", error, 0.0))
                return leases
        return [lease for lease in leases if lease not in put_off]

    def _begin_all(self, leases: Sequence[Lease]) -> None:
        for lease in leases:
            if self._stopping:
                # The claim was on its way when the worker was told to stop: it goes back as it came.
                self._handed_back += 1
                self._outbox.append(Parcel(lease, Settlement(lease.key, judge(lease, Release())), time.monotonic()))
                continue
            if self._observer.wants_each_job:
                self.observe(e.JobStarted(lease))
            run = Run(self, lease, self._loop)
            self._runs[run.key] = run

    def reported(self, lease: Lease, progress: Progress) -> None:
        if self._observer.wants_each_job:
            self.observe(e.JobReported(lease, progress))

    def finished(self, run: Run, transition: Transition | None) -> None:
        """A run says how it ended; None when it has nothing left to say."""
        self._runs.pop(run.key, None)
        if transition is not None:
            self._outbox.append(Parcel(run.lease, Settlement(run.key, transition), run.started, run.is_promised))
            if len(self._outbox) == self._large_trip:
                self._is_loaded.set()
        self._wake.set()

    def _record(self, batch: list[Parcel], answer: Exchange) -> None:
        for event in news(batch, set(answer.refused), self._pace, each=self._observer.wants_each_job):
            self.observe(event)

    # What the keeper asks and tells, from its own thread

    def held(self) -> Collection[LeaseKey]:
        # A job stays held until its settlement is taken: the lease must not run out on the way.
        waiting = [self._outbox, *(trip.batch for trip in self._under_way)]
        return [*self._runs, *(parcel.settlement.key for batch in waiting for parcel in batch)]

    def expects_leases(self) -> bool:
        """An exchange is on its way: it may have given leases that are not in `held` yet."""
        return bool(self._under_way)

    def info(self) -> WorkerInfo:
        return WorkerInfo(
            id=self.id,
            host=socket.gethostname(),
            pid=os.getpid(),
            queues=self._queues,
            concurrency=self._concurrency,
            running=len(self._runs),
            completed=self._pace.completed,
            finished_per_minute=self._pace.per_minute(),
            started_at=self._started_at,
            quiet=self._quiet,
        )

    def lost(self, key: LeaseKey) -> None:
        self._loop.call_soon_threadsafe(self._lose_run, key)

    def asked_to_stop(self, key: LeaseKey, reason: str) -> None:
        self._loop.call_soon_threadsafe(self._stop_run, key, reason)

    def obey(self, control: Control) -> None:
        if control is Control.STOP:
            self._loop.call_soon_threadsafe(lambda: self._loop.create_task(self.stop()))
        elif not self._quiet:
            self._quiet = True
            self.observe(e.WorkerQuiet(self.id, len(self._runs)))
            self._loop.call_soon_threadsafe(self._call_back_order)

    def observe(self, event: Event) -> None:
        try:
            self._observer.observe(event)
        except Exception:
            # Who only looks on must not be able to stop the work.
            log.exception("an observer failed on %s", type(event).__name__)

    def _lose_run(self, key: LeaseKey) -> None:
        run = self._runs.get(key)
        # A lease that is gone is also how a committed completion looks; what the handler does after it is its affair.
        if run is not None and not run.is_promised:
            self.observe(e.JobLeaseLost(run.lease))
            run.lose()

    def _stop_run(self, key: LeaseKey, reason: str) -> None:
        run = self._runs.get(key)
        if run is not None:
            run.cancel(reason)
