"""Has the store decide what is due, and notes what it answered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import uuid_utils

from jobyard.domain.due import GRACE, Plan, due, next_instant
from jobyard.domain.events import Event, StoreFailed, TickDecided, TickDelayed
from jobyard.domain.instant import Instant
from jobyard.domain.schedule import Overlap, Verdict
from jobyard.errors import StoreError, StoreUnavailable
from jobyard.ports.schedule_store import Decided, Decision, Tick
from jobyard.ports.store import Store
from jobyard.scheduler.timetable import Entry, Timetable

TICKS_AT_ONCE = 250
# So many calls overlap: the next is built while the store works on this one.
CALLS_AT_ONCE = 4
SCHEDULES_IN_A_PAGE = 1000
# What could not be decided because of a job that is not over, or a full queue, is tried again after this.
AGAIN = 1000
# A schedule whose job the store does not take at all is tried again after this.
BROKEN_AGAIN = 60_000
WARN_AGAIN = 60_000
# Two instants of one schedule are at least this far apart.
APART = 1000
# In one call so much time is spent on counting what nobody was there for.
AWAY_SECONDS = 0.03
# More absences than these are looked up all at once.
FEW = 20

Planned = tuple[Entry, list[Plan]]


class Answered(NamedTuple):
    entry: Entry
    plans: list[Plan]
    decided: list[Decided]  # one for each plan
    at: Instant  # when the store had answered


class Firing:
    def __init__(self, store: Store, timetable: Timetable, now: Callable[[], Instant]) -> None:
        self._store = store
        self._timetable = timetable
        self._now = now
        self.events: list[Event] = []  # whoever calls takes them out
        self._away_told_at: dict[str, Instant] = {}  # by queue
        self._away: dict[Entry, None] = {}  # what nobody was there for, in order; not in the timetable's line
        self.stale: set[str] = set()  # names whose definition must be looked at; whoever calls does so

    @property
    def is_behind(self) -> bool:
        """There is something left to be made up for."""
        return bool(self._away)

    async def fire(self, entries: Sequence[Entry], now: Instant) -> None:
        """Those that are in time, and some of the others; what is not decided stays where it was.

        After an absence much has to be counted and made up for: a little in each call, so that those in time need not
        wait for it. Raises StoreError.
        """
        in_time = [entry for entry in entries if not _is_away(entry, now)]
        self._away.update(dict.fromkeys(entry for entry in entries if _is_away(entry, now)))
        answered: list[Answered] = []
        try:
            await self._decide_all(await self._planned(in_time, now), now, answered)
            if self._away:
                await self._make_up(now, answered)
        finally:
            # Counting their next instants takes longer than deciding: nobody has to wait for that.
            for each in answered:
                try:
                    self._note(each)
                except Exception as error:
                    self._put_off(each.entry, now, error)
            decided = {each.entry for each in answered}
            for entry in self._timetable.current(entry for entry in in_time if entry not in decided):
                if entry.look_at is not None and entry.look_at <= now:
                    self._timetable.look(entry, entry.look_at)

    async def _make_up(self, now: Instant, answered: list[Answered]) -> None:
        await self._look_up([entry for entry in self._away if now - entry.asked_at > GRACE], now)
        planned: list[Planned] = []
        ends_at = time.monotonic() + AWAY_SECONDS
        done: list[Entry] = []
        for entry in self._away:
            done.append(entry)
            if self._timetable.is_current(entry):
                planned += await self._planned([entry], now)
            if time.monotonic() >= ends_at or len(planned) >= TICKS_AT_ONCE:
                break
        await self._decide_all(planned, now, answered)
        for entry in done:
            self._away.pop(entry, None)

    async def _planned(self, entries: Sequence[Entry], now: Instant) -> list[Planned]:
        planned: list[Planned] = []
        for entry in entries:
            try:
                planned.append((entry, _plans(entry, now)))
            except Exception as error:  # one that cannot be counted must not hold the others up
                self._put_off(entry, now, error)
            if _is_away(entry, now):
                await asyncio.sleep(0)
        return planned

    def _put_off(self, entry: Entry, now: Instant, error: Exception) -> None:
        self._timetable.look(entry, now + BROKEN_AGAIN)
        self.events.append(StoreFailed(f"deciding {entry.schedule.name}", error, BROKEN_AGAIN / 1000))

    async def _look_up(self, entries: Collection[Entry], now: Instant) -> None:
        """What others made up for meanwhile is not to be counted again."""
        until: dict[str, Instant] = {}
        if len(entries) > FEW:
            after: str | None = None
            while page := await self._store.armed(SCHEDULES_IN_A_PAGE, after):
                until.update((armed.schedule, armed.decided_until) for armed in page)
                after = page[-1].schedule
        else:
            for entry in entries:
                newest = await self._store.ticks(entry.schedule.name, 1)
                until.update((tick.schedule, tick.at) for tick in newest)
        for entry in entries:
            entry.decided_until = max(entry.decided_until, until.get(entry.schedule.name, 0))
            entry.asked_at = now

    async def _decide_all(self, planned: Sequence[Planned], now: Instant, answered: list[Answered]) -> None:
        """In calls that overlap; what one of them did not reach takes nothing from the others. Raises StoreError."""
        free = asyncio.Semaphore(CALLS_AT_ONCE)
        faults: list[StoreError] = []

        async def one(batch: Sequence[Planned]) -> None:
            async with free:
                if not faults:
                    try:
                        answered.extend(await self._decide(batch, now))
                    except StoreError as fault:
                        faults.append(fault)

        await asyncio.gather(*(one(batch) for batch in _batches(planned)))
        if faults:
            raise faults[0]

    async def _decide(self, batch: Sequence[Planned], now: Instant) -> list[Answered]:
        try:
            ticks = [_tick(entry, plan) for entry, plans in batch for plan in plans]
            decided = iter(await self._store.decide(ticks) if ticks else [])
        except StoreError:
            raise
        except Exception as error:
            if len(batch) > 1:
                # One of them cannot be stored: the others must not suffer.
                return [answered for each in batch for answered in await self._decide([each], now)]
            self._put_off(batch[0][0], now, error)
            return []
        at = self._now()
        return [Answered(entry, plans, [next(decided) for _ in plans], at) for entry, plans in batch]

    def _note(self, answered: Answered) -> None:
        entry, last = answered.entry, Decision.KNOWN
        for plan, decided in zip(answered.plans, answered.decided, strict=True):
            last = decided.decision
            if last is Decision.MADE or last is Decision.KNOWN:
                entry.decided_until = max(entry.decided_until, plan.at)
            elif last is Decision.HELD:
                entry.held = plan.at
            if last is Decision.MADE:
                self.events.append(_told(entry, plan, decided, answered.at))
        if not self._timetable.is_current(entry):
            return
        if entry.held is not None and entry.held <= entry.decided_until:
            entry.held = None
        match last:
            case Decision.HELD | Decision.FULL | Decision.AWAY:
                self._again(entry, answered.plans[-1], last, answered.at)
            case Decision.STALE:
                self.stale.add(entry.schedule.name)
                self._timetable.look(entry, answered.at + AGAIN)
            case _:
                self._timetable.go_on(entry)
                if not answered.plans and entry.look_at is not None:
                    self._timetable.look(entry, max(entry.look_at, answered.at + AGAIN))

    def _again(self, entry: Entry, plan: Plan, why: Decision, now: Instant) -> None:
        queue = entry.schedule.queue
        if why is Decision.FULL and now - entry.warned_at >= WARN_AGAIN:
            entry.warned_at = now
            self.events.append(TickDelayed(entry.schedule.name, plan.at, queue))
        if why is Decision.AWAY and now - self._away_told_at.get(queue, 0) >= WARN_AGAIN:
            # Once for all schedules of the queue.
            self._away_told_at[queue] = now
            error = StoreUnavailable(f"the store of queue {queue} does not answer")
            self.events.append(StoreFailed(f"deciding ticks of queue {queue}", error, AGAIN / 1000))
        following = next_instant(entry.schedule, plan.at)
        self._timetable.look(entry, now + AGAIN if following is None else min(now + AGAIN, following))


def _is_away(entry: Entry, now: Instant) -> bool:
    """Nobody was there in time."""
    return entry.next_at is not None and now - entry.next_at > GRACE


def _plans(entry: Entry, now: Instant) -> list[Plan]:
    at = entry.next_at
    if at is not None and entry.held is None and 0 <= now - at < APART:
        return [Plan(at, Verdict.FIRED, at)]  # the usual case, without counting
    return due(entry.schedule, entry.decided_until, now, entry.held)


def _tick(entry: Entry, plan: Plan) -> Tick:
    schedule = entry.schedule
    return Tick(
        schedule=schedule.name,
        revision=schedule.revision,
        at=plan.at,
        queue=schedule.queue,
        verdict=plan.verdict,
        job=schedule.job(str(uuid_utils.uuid7()), plan.at) if plan.verdict.has_job else None,
        first=plan.first if plan.count > 1 else None,
        count=plan.count,
        skip_if_held=schedule.overlap is Overlap.SKIP,
    )


def _told(entry: Entry, plan: Plan, decided: Decided, now: Instant) -> TickDecided:
    verdict = decided.verdict or plan.verdict
    late = max(0, now - plan.at) / 1000
    return TickDecided(entry.schedule.name, plan.at, verdict, plan.count, decided.job_id, late)


def _batches(planned: Sequence[Planned]) -> Iterator[list[Planned]]:
    """Some hundred ticks each; those of one schedule stay together."""
    filled = 0

    def place(each: Planned) -> int:
        nonlocal filled
        filled += len(each[1])
        return (filled - 1) // TICKS_AT_ONCE

    for _, batch in groupby(planned, key=place):
        yield list(batch)
