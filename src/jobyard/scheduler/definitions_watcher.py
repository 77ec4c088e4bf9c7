"""Watches the schedule definitions in the store: loads all, follows the change log, and slowly compares all again."""

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
SWEEP_PAGE = 250
# Computing a next tick takes about 30 µs: without yielding, a large load would block the event loop.
YIELD_EVERY = 50
# After this many definitions that cannot be read, the store is taken for unavailable.
GIVE_UP_AFTER = 3


class DefinitionsWatcher:
    def __init__(self, store: Store, timetable: Timetable) -> None:
        self._store = store
        self._timetable = timetable
        self._position: int | None = None  # in the log; None: not yet loaded
        self._changed: dict[str, None] = {}  # named in the log, and not reloaded yet
        self._swept_until = ""  # names up to this one were compared in this sweep

    @property
    def is_loaded(self) -> bool:
        return self._position is not None

    async def load(self) -> None:
        """Load all definitions. The log position is read first, so that changes during the load are found there."""
        position = await self._end_of_log()
        decided: dict[str, tuple[int, Instant]] = {}
        after: str | None = None
        while page := await self._store.armed(PAGE, after):
            decided.update((each.schedule, (each.revision, each.decided_until)) for each in page)
            after = page[-1].schedule
        after = None
        while records := await self._store.fetch_all(COLLECTION, PAGE, after):
            for number, record in enumerate(records):
                await self._add(record, decided.get(record.key))
                if number % YIELD_EVERY == 0:
                    await asyncio.sleep(0)
            after = records[-1].key
        self._position = position

    async def _end_of_log(self) -> int:
        number = 0
        while entries := await self._store.read(LOG, number, PAGE):
            number = entries[-1].number
        return number

    async def _add(self, record: Record, armed: tuple[int, Instant] | None) -> None:
        schedule = _read(record)
        if schedule is None:
            return
        if armed is None or armed[0] != schedule.revision:
            # The process that changed it died, or is about to arm it.
            armed = None if await self._arm(schedule, schedule.since) else armed
        decided_until = schedule.since if armed is None else max(schedule.since, armed[1])
        self._timetable.put(schedule, record.version, decided_until)

    async def _arm(self, schedule: Schedule, since: Instant) -> bool:
        """Arm the schedule; returns whether its earlier decisions are forgotten."""
        if await self._store.arm(schedule.name, schedule.revision, since):
            return False
        record = await self._store.fetch(COLLECTION, schedule.name)
        if record is not None and decode(record.data).revision == schedule.revision:
            # What is armed belongs to a removed schedule of the same name, made under a clock that was ahead.
            await self._store.disarm(schedule.name)
            return await self._store.arm(schedule.name, schedule.revision, since)
        return False

    async def follow(self) -> bool:
        """Reload what changed since the last call; returns whether anything did."""
        assert self._position is not None
        read = 0
        while entries := await self._store.read(LOG, self._position, PAGE):
            self._changed.update((entry.data.decode(), None) for entry in entries)
            self._position = entries[-1].number
            read += len(entries)
            if len(entries) < PAGE:
                break
        if read > LOG_KEPT // 2:
            # It has not read the log for so long that entries may have been trimmed.
            await self.load()
            self._changed.clear()
            return True
        has_changes = bool(self._changed)
        await self.reload(list(self._changed), arm=False)  # the process that logged the change has armed it
        return has_changes

    async def sweep(self) -> None:
        """Compare one page of definitions, because a process may have died before it logged its change."""
        records = await self._store.fetch_all(COLLECTION, SWEEP_PAGE, self._swept_until or None)
        last = records[-1].key if len(records) == SWEEP_PAGE else None
        found = {record.key: record.version for record in records}
        known = {name: self._timetable.get(name) for name in self._timetable.between(self._swept_until, last)}
        changed = {name for name, entry in known.items() if entry is not None and found.get(name) != entry.version}
        changed.update(found.keys() - known.keys())
        self._swept_until = last or ""
        await self.reload(sorted(changed), arm=True)

    async def reload(self, names: Iterable[str], *, arm: bool) -> None:
        """Reload these definitions; with `arm`, also arm them in the store."""
        failed: list[StoreError] = []
        for number, name in enumerate(names):
            try:
                await self._reload(name, arm)
            except StoreError as error:  # of several stores one may be unavailable: the others' schedules go on
                failed.append(error)
                if len(failed) >= GIVE_UP_AFTER:
                    break
                continue
            self._changed.pop(name, None)
            if number % YIELD_EVERY == 0:
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
            # What this scheduler saw decided must not be decided again, even if the store has forgotten it.
            decided_until = max(decided_until, before.decided_until)
        if arm:
            await self._arm(schedule, decided_until)
        newest = await self._store.ticks(name, 1)
        self._timetable.put(schedule, record.version, max([decided_until, *(tick.at for tick in newest)]))


def _read(record: Record) -> Schedule | None:
    try:
        return decode(record.data)
    except msgspec.MsgspecError as error:  # a newer jobyard wrote it
        log.warning("schedule %s cannot be read and is left to other schedulers: %s", record.key, error)
        return None
