"""Follows the definitions in the store: all of them once, then what the log tells of, and slowly all of them again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

import msgspec

from jobyard.domain.instant import Instant
from jobyard.domain.schedule import Schedule
from jobyard.errors import StoreError
from jobyard.operations.schedules import COLLECTION, LOG, LOG_KEPT, decode
from jobyard.ports.record_store import Record
from jobyard.ports.store import Store
from jobyard.scheduler.timetable import Timetable

log = logging.getLogger("jobyard.scheduler")

PAGE = 1000
SWEPT = 250
# Counting the next instant takes some 30 µs: others get a turn in between.
BREATHE_EVERY = 50
# So many definitions that cannot be looked at mean that none can.
GIVE_UP_AFTER = 3


class Following:
    def __init__(self, store: Store, timetable: Timetable) -> None:
        self._store = store
        self._timetable = timetable
        self._position: int | None = None  # in the log; None: not yet loaded
        self._changed: dict[str, None] = {}  # told in the log, and not yet taken over
        self._swept = ""  # names up to this one were compared in this round

    @property
    def is_loaded(self) -> bool:
        return self._position is not None

    async def load(self) -> None:
        """Everything; what changes meanwhile is told in the log from the position that is read first."""
        position = await self._end_of_log()
        decided: dict[str, tuple[int, Instant]] = {}
        after: str | None = None
        while page := await self._store.armed(PAGE, after):
            decided.update((each.schedule, (each.revision, each.decided_until)) for each in page)
            after = page[-1].schedule
        after = None
        while records := await self._store.fetch_all(COLLECTION, PAGE, after):
            for number, record in enumerate(records):
                await self._enter(record, decided.get(record.key))
                if number % BREATHE_EVERY == 0:
                    await asyncio.sleep(0)
            after = records[-1].key
        self._position = position

    async def _end_of_log(self) -> int:
        number = 0
        while entries := await self._store.read(LOG, number, PAGE):
            number = entries[-1].number
        return number

    async def _enter(self, record: Record, armed: tuple[int, Instant] | None) -> None:
        schedule = _read(record)
        if schedule is None:
            return
        if armed is None or armed[0] != schedule.revision:
            # Whoever changed it died, or is just about to arm it.
            armed = None if await self._arm(schedule, schedule.since) else armed
        decided_until = schedule.since if armed is None else max(schedule.since, armed[1])
        self._timetable.put(schedule, record.version, decided_until)

    async def _arm(self, schedule: Schedule, since: Instant) -> bool:
        """Answers whether what had been decided is forgotten."""
        if await self._store.arm(schedule.name, schedule.revision, since):
            return False
        record = await self._store.fetch(COLLECTION, schedule.name)
        if record is not None and decode(record.data).revision == schedule.revision:
            # What is armed belongs to one of that name that was removed before, under a clock that was ahead.
            await self._store.disarm(schedule.name)
            return await self._store.arm(schedule.name, schedule.revision, since)
        return False

    async def follow(self) -> bool:
        """Take over what was changed since the last call; answers whether anything was."""
        assert self._position is not None
        read = 0
        while entries := await self._store.read(LOG, self._position, PAGE):
            self._changed.update((entry.data.decode(), None) for entry in entries)
            self._position = entries[-1].number
            read += len(entries)
            if len(entries) < PAGE:
                break
        if read > LOG_KEPT // 2:
            # It was away for so long that some may have been trimmed off.
            await self.load()
            self._changed.clear()
            return True
        is_news = bool(self._changed)
        await self.reload(list(self._changed), arm=False)  # who tells of a change has done that
        return is_news

    async def sweep(self) -> None:
        """Compare one page of definitions: somebody may have died before it told of its change."""
        records = await self._store.fetch_all(COLLECTION, SWEPT, self._swept or None)
        last = records[-1].key if len(records) == SWEPT else None
        found = {record.key: record.version for record in records}
        known = {name: self._timetable.get(name) for name in self._timetable.between(self._swept, last)}
        changed = {name for name, entry in known.items() if entry is not None and found.get(name) != entry.version}
        changed.update(found.keys() - known.keys())
        self._swept = last or ""
        await self.reload(sorted(changed), arm=True)

    async def reload(self, names: Iterable[str], *, arm: bool) -> None:
        """Look at these definitions; with `arm`, also see that the store takes their ticks."""
        failed: list[StoreError] = []
        for number, name in enumerate(names):
            try:
                await self._reload(name, arm)
            except StoreError as error:  # of several stores one may be away: the others' schedules go on
                failed.append(error)
                if len(failed) >= GIVE_UP_AFTER:
                    break
                continue
            self._changed.pop(name, None)
            if number % BREATHE_EVERY == 0:
                await asyncio.sleep(0)
        if failed:
            raise failed[0]

    async def _reload(self, name: str, arm: bool) -> None:
        record = await self._store.fetch(COLLECTION, name)
        schedule = None if record is None else _read(record)
        if record is None or schedule is None:
            self._timetable.remove(name)
            return
        decided_until = schedule.since
        before = self._timetable.get(name)
        if before is not None and before.schedule.revision == schedule.revision:
            # What was decided before its eyes must not be decided again, even if the store was told to forget it.
            decided_until = max(decided_until, before.decided_until)
        if arm:
            await self._arm(schedule, decided_until)
        newest = await self._store.ticks(name, 1)
        self._timetable.put(schedule, record.version, max([decided_until, *(tick.at for tick in newest)]))


def _read(record: Record) -> Schedule | None:
    try:
        return decode(record.data)
    except msgspec.MsgspecError as error:  # a newer jobyard wrote it
        log.warning("schedule %s cannot be read and is left to others: %s", record.key, error)
        return None
