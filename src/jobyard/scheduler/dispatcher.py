"""Dispatches due ticks: has the store decide each one, and records the decisions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import uuid_utils

from jobyard.domain.due import GRACE, TickPlan, due, next_instant
from jobyard.domain.events import Event, StoreFailed, TickDecided, TickDelayed
from jobyard.domain.instant import Instant
from jobyard.domain.job import State
from jobyard.domain.schedule import Overlap, Verdict
from jobyard.errors import StoreError, StoreUnavailable
from jobyard.ports.admin_store import Filter
from jobyard.ports.schedule_store import Decided, Decision, Tick
from jobyard.ports.store import Store
from jobyard.scheduler.timetable import Timetable, TimetableEntry

MAX_TICKS_PER_CALL = 250
# Calls in flight: the next is built while the store works on this one.
MAX_CALLS = 4
PAGE = 1000
# A tick that could not be decided (an earlier job runs, or the queue is full) is retried after this, in milliseconds.
RETRY = 1000
# A schedule whose job the store rejects is retried after this.
RETRY_REJECTED = 60_000
WARN_EVERY = 60_000
# Two ticks of one schedule are at least this far apart.
MIN_DISTANCE = 1000
# Time for counting overdue ticks in one call: without a bound, the ticks that are due now would be late.
OVERDUE_SECONDS = 0.03
# More overdue schedules than these are read page by page instead of one by one.
FEW = 20

PlannedTicks = tuple[TimetableEntry, list[TickPlan]]


class DispatchResult(NamedTuple):
    entry: TimetableEntry
    plans: list[TickPlan]
    decided: list[Decided]  # one for each plan
    at: Instant  # when the store responded


class TickDispatcher:
    def __init__(self, store: Store, timetable: Timetable, now: Callable[[], Instant]) -> None:
        self._store = store
        self._timetable = timetable
        self._now = now
        self.events: list[Event] = []  # for the caller, which empties it
        self._unavailable_warned_at: dict[str, Instant] = {}  # by queue
        self._overdue: dict[TimetableEntry, None] = {}  # in order; not in the timetable's heap
        self.stale: set[str] = set()  # schedules whose definition must be reloaded, by the caller

    @property
    def is_behind(self) -> bool:
        """Whether overdue ticks are left."""
        return bool(self._overdue)

    async def fire(self, entries: Sequence[TimetableEntry], now: Instant) -> None:
        """Decide the ticks that are in time, and some of the overdue ones; the others stay.

        After an outage many ticks are overdue: a few are decided in each call, so that those in time do not wait.
        Raises StoreError.
        """
        in_time = [entry for entry in entries if not _is_overdue(entry, now)]
        self._overdue.update(dict.fromkeys(entry for entry in entries if _is_overdue(entry, now)))
        results: list[DispatchResult] = []
        try:
            await self._decide_all(await self._planned(in_time, now), now, results)
            if self._overdue:
                await self._catch_up(now, results)
        finally:
            # Computing the next ticks takes longer than deciding, so it comes after all decisions.
            for each in results:
                try:
                    self._record(each)
                except Exception as error:
                    self._postpone(each.entry, now, error)
            decided = {each.entry for each in results}
            for entry in self._timetable.current(entry for entry in in_time if entry not in decided):
                if entry.check_at is not None and entry.check_at <= now:
                    self._timetable.schedule(entry, entry.check_at)

    async def _catch_up(self, now: Instant, results: list[DispatchResult]) -> None:
        await self._refresh([entry for entry in self._overdue if now - entry.asked_at > GRACE], now)
        planned: list[PlannedTicks] = []
        ends_at = time.monotonic() + OVERDUE_SECONDS
        done: list[TimetableEntry] = []
        for entry in self._overdue:
            done.append(entry)
            if self._timetable.is_current(entry):
                planned += await self._planned([entry], now)
            if time.monotonic() >= ends_at or len(planned) >= MAX_TICKS_PER_CALL:
                break
        await self._decide_all(planned, now, results)
        for entry in done:
            self._overdue.pop(entry, None)

    async def _planned(self, entries: Sequence[TimetableEntry], now: Instant) -> list[PlannedTicks]:
        planned: list[PlannedTicks] = []
        for entry in entries:
            try:
                planned.append((entry, _plans(entry, now)))
            except Exception as error:  # one that cannot be computed must not hold up the others
                self._postpone(entry, now, error)
            if _is_overdue(entry, now):
                await asyncio.sleep(0)
        return planned

    def _postpone(self, entry: TimetableEntry, now: Instant, error: Exception) -> None:
        self._timetable.schedule(entry, now + RETRY_REJECTED)
        self.events.append(StoreFailed(f"deciding {entry.schedule.name}", error, RETRY_REJECTED / 1000))

    async def _refresh(self, entries: Collection[TimetableEntry], now: Instant) -> None:
        """Read what other schedulers have decided meanwhile, so that it is not counted again."""
        until: dict[str, Instant] = {}
        if len(entries) > FEW:
            after: str | None = None
            while page := await self._store.armed(PAGE, after):
                until.update((armed.schedule, armed.decided_until) for armed in page)
                after = page[-1].schedule
        else:
            for entry in entries:
                newest = await self._store.ticks(entry.schedule.name, 1)
                until.update((tick.schedule, tick.at) for tick in newest)
        for entry in entries:
            entry.decided_until = max(entry.decided_until, until.get(entry.schedule.name, 0))
            entry.asked_at = now

    async def _decide_all(self, planned: Sequence[PlannedTicks], now: Instant, results: list[DispatchResult]) -> None:
        """Decide in overlapping calls; a call that fails does not affect the others. Raises StoreError."""
        free = asyncio.Semaphore(MAX_CALLS)
        faults: list[StoreError] = []

        async def one(batch: Sequence[PlannedTicks]) -> None:
            async with free:
                if not faults:
                    try:
                        results.extend(await self._decide(batch, now))
                    except StoreError as fault:
                        faults.append(fault)

        await asyncio.gather(*(one(batch) for batch in _batches(planned)))
        if faults:
            raise faults[0]

    async def _decide(self, batch: Sequence[PlannedTicks], now: Instant) -> list[DispatchResult]:
        try:
            elsewhere = {entry for entry, _ in batch if await self._runs_elsewhere(entry)}
            held = [each for each in batch if each[0] in elsewhere and each[0].schedule.overlap is Overlap.QUEUE]
            asked = [each for each in batch if each not in held] if held else batch
            ticks = [_tick(entry, plan, entry in elsewhere) for entry, plans in asked for plan in plans]
            decided = iter(await self._store.decide(ticks) if ticks else [])
        except StoreError:
            raise
        except Exception as error:
            if len(batch) > 1:
                # One of them cannot be stored: decide each alone, so that the others are not affected.
                return [result for each in batch for result in await self._decide([each], now)]
            self._postpone(batch[0][0], now, error)
            return []
        at = self._now()
        return [
            *(DispatchResult(entry, plans, [Decided(Decision.HELD)] * len(plans), at) for entry, plans in held),
            *(DispatchResult(entry, plans, [next(decided) for _ in plans], at) for entry, plans in asked),
        ]

    async def _runs_elsewhere(self, entry: TimetableEntry) -> bool:
        """Whether a job from before the schedule's queue was changed is unfinished; the new queue does not know it."""
        schedule = entry.schedule
        if entry.has_left or schedule.overlap is Overlap.ALLOW:
            return False
        where = Filter(unique_key=schedule.unique_key, states=(State.PENDING, State.RUNNING))
        page = await self._store.find(where, PAGE)
        is_unfinished = any(job.queue != schedule.queue for job in page.jobs)
        entry.has_left = not is_unfinished and page.cursor is None
        return is_unfinished

    def _record(self, result: DispatchResult) -> None:
        entry, last = result.entry, Decision.KNOWN
        for plan, decided in zip(result.plans, result.decided, strict=True):
            last = decided.decision
            if last is Decision.MADE or last is Decision.KNOWN:
                entry.decided_until = max(entry.decided_until, plan.at)
            elif last is Decision.HELD:
                entry.held = plan.at
            if last is Decision.MADE:
                self.events.append(_event(entry, plan, decided, result.at))
        if not self._timetable.is_current(entry):
            return
        if entry.held is not None and entry.held <= entry.decided_until:
            entry.held = None
        match last:
            case Decision.HELD | Decision.FULL | Decision.UNAVAILABLE:
                self._retry(entry, result.plans[-1], last, result.at)
            case Decision.STALE:
                self.stale.add(entry.schedule.name)
                self._timetable.schedule(entry, result.at + RETRY)
            case _:
                self._timetable.advance(entry)
                if not result.plans and entry.check_at is not None:
                    self._timetable.schedule(entry, max(entry.check_at, result.at + RETRY))

    def _retry(self, entry: TimetableEntry, plan: TickPlan, why: Decision, now: Instant) -> None:
        queue = entry.schedule.queue
        if why is Decision.FULL and now - entry.warned_at >= WARN_EVERY:
            entry.warned_at = now
            self.events.append(TickDelayed(entry.schedule.name, plan.at, queue))
        if why is Decision.UNAVAILABLE and now - self._unavailable_warned_at.get(queue, 0) >= WARN_EVERY:
            # One warning for all schedules of the queue.
            self._unavailable_warned_at[queue] = now
            error = StoreUnavailable(f"the store of queue {queue} does not respond")
            self.events.append(StoreFailed(f"deciding ticks of queue {queue}", error, RETRY / 1000))
        following = next_instant(entry.schedule, plan.at)
        self._timetable.schedule(entry, now + RETRY if following is None else min(now + RETRY, following))


def _is_overdue(entry: TimetableEntry, now: Instant) -> bool:
    """Whether no scheduler decided its next tick within the grace time."""
    return entry.next_at is not None and now - entry.next_at > GRACE


def _plans(entry: TimetableEntry, now: Instant) -> list[TickPlan]:
    at = entry.next_at
    if at is not None and entry.held is None and 0 <= now - at < MIN_DISTANCE:
        return [TickPlan(at, Verdict.FIRED, at)]  # the usual case, without computing more
    return due(entry.schedule, entry.decided_until, now, entry.held)


def _tick(entry: TimetableEntry, plan: TickPlan, skips: bool) -> Tick:
    schedule = entry.schedule
    verdict = Verdict.SKIPPED if skips and plan.verdict.has_job else plan.verdict
    return Tick(
        schedule=schedule.name,
        revision=schedule.revision,
        at=plan.at,
        queue=schedule.queue,
        verdict=verdict,
        job=schedule.job(str(uuid_utils.uuid7()), plan.at) if verdict.has_job else None,
        first=plan.first if plan.count > 1 else None,
        count=plan.count,
        skip_if_held=schedule.overlap is Overlap.SKIP,
    )


def _event(entry: TimetableEntry, plan: TickPlan, decided: Decided, now: Instant) -> TickDecided:
    verdict = decided.verdict or plan.verdict
    late = max(0, now - plan.at) / 1000
    return TickDecided(entry.schedule.name, plan.at, verdict, plan.count, decided.job_id, late)


def _batches(planned: Sequence[PlannedTicks]) -> Iterator[list[PlannedTicks]]:
    """Batches of up to MAX_TICKS_PER_CALL ticks; those of one schedule stay together."""
    filled = 0

    def number(each: PlannedTicks) -> int:
        nonlocal filled
        filled += len(each[1])
        return (filled - 1) // MAX_TICKS_PER_CALL

    for _, batch in groupby(planned, key=number):
        yield list(batch)
