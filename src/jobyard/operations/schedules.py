"""Schedules in the store: queries, changes, declarations, and the log that schedulers follow."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec
import uuid_utils

from jobyard.api.schemas.schedules import ScheduleView, schedule_view
from jobyard.domain.due import instants, next_instant
from jobyard.domain.instant import Instant
from jobyard.domain.schedule import PastTick, Schedule
from jobyard.errors import BadOption, NotFound, NotPossible
from jobyard.operations.job_factory import JobFactory
from jobyard.operations.queries import Queries
from jobyard.operations.schedule_options import BY_FIELD, check_policies, check_timing, checked_fields
from jobyard.ports.admin_store import Filter
from jobyard.ports.record_store import Record
from jobyard.ports.schedule_store import ArmedSchedule
from jobyard.ports.store import Store

__all__ = ["COLLECTION", "LOG", "LOG_KEPT", "SHORTEST_INTERVAL_SECONDS", "Declared", "Schedules", "decode"]

COLLECTION = "jobyard.schedules"
LOG = "jobyard.schedules"  # names of changed schedules; schedulers follow it
LOG_KEPT = 10_000
TRIM_EVERY = 100
PAGE = 1000
SHORTEST_INTERVAL_SECONDS = 10.0
# Decided further ahead of the store's clock than this (ms): the clock was wrong.
AHEAD = 60_000
TIMING = ("expression", "timezone", "start_at", "end_at")
# The fields that a declaration sets; the store owns the rest.
DECLARED = (*(BY_FIELD.keys() - {"name", "enabled"}), "backoff", "tags", "is_declared", "declared_enabled")

decode = msgspec.json.Decoder(Schedule).decode
_encode = msgspec.json.Encoder().encode
_replace = msgspec.structs.replace


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """The result of declaring schedules."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()  # no longer declared here; they stay and keep firing
    refused: Mapping[str, str] = {}  # by name: why it was not written


class Schedules:
    def __init__(self, store: Store, shortest_interval_seconds: float = SHORTEST_INTERVAL_SECONDS) -> None:
        self._store = store
        self._shortest = shortest_interval_seconds

    # Query

    async def page(self, limit: int = 50, after: str | None = None) -> list[Schedule]:
        """By name."""
        return [decode(record.data) for record in await self._store.fetch_all(COLLECTION, limit, after)]

    async def all(self) -> list[Schedule]:
        """All of them, by name."""
        found = await self.page(PAGE)
        while found and len(found) % PAGE == 0:
            more = await self.page(PAGE, found[-1].name)
            if not more:
                break
            found += more
        return found

    async def get(self, name: str) -> Schedule:
        """Raises NotFound."""
        return decode((await self._fetch(name)).data)

    async def next(self, name: str, count: int = 5) -> list[Instant]:
        """Its next ticks by the store's clock; none while it is paused or after its end."""
        schedule = await self.get(name)
        if not schedule.enabled:
            return []
        return await first_instants(instants(schedule, await self._store.now()), count)

    async def history(self, name: str, limit: int = 50, before: Instant | None = None) -> list[PastTick]:
        """Its past ticks, newest first."""
        await self._fetch(name)
        ticks = await self._store.ticks(name, limit, before)
        ids = tuple({tick.job_id for tick in ticks if tick.job_id is not None})
        states = {job.id: job.state async for job in Queries(self._store).walk(Filter(ids=ids))} if ids else {}
        return [
            PastTick(
                at=tick.at,
                verdict=tick.verdict,
                job_id=tick.job_id,
                state=states.get(tick.job_id or ""),
                is_pruned=tick.job_id is not None and tick.job_id not in states,
                first=tick.first,
                count=tick.count,
                decided_at=tick.decided_at,
            )
            for tick in ticks
        ]

    async def ahead(self, schedule: Schedule, now: Instant) -> Instant | None:
        """Until when it does not fire because the store's clock was once ahead; `resume` restarts it from now."""
        newest = await self._store.ticks(schedule.name, 1)
        decided_until = max([schedule.since, *(tick.at for tick in newest)])
        return decided_until if decided_until > now + AHEAD else None

    # Change

    async def add(self, schedule: Schedule) -> Schedule:
        """Add a schedule. Raises BadOption if it is invalid, NotPossible if the name is taken."""
        check_policies(schedule)
        check_timing(schedule, self._shortest)
        now = await self._store.now()
        if next_instant(_replace(schedule, since=0), now) is None:
            raise BadOption(f"Schedule {schedule.name} would never fire: its end_at is in the past.", option="end_at")
        stored = await self._insert(schedule, now)
        if stored is None:
            raise NotPossible(f"Schedule {schedule.name} already exists. Edit it, or choose another name.")
        return stored

    async def edit(self, name: str, changes: Mapping[str, Any], factory: JobFactory | None = None) -> Schedule:
        """Change options, named by field; `factory` checks a new kind or payload.

        Raises BadInput for a value that is invalid, NotPossible for a schedule that is declared elsewhere.
        """
        if "name" in changes:
            raise BadOption("Cannot rename a schedule. Add another one, and remove this one.", option="name")
        fields = checked_fields(changes)

        def edited(schedule: Schedule, now: Instant) -> Schedule:
            if not schedule.is_managed:
                raise NotPossible(
                    f"Cannot edit schedule {name}: it is declared in {_place(schedule.origin)}. Edit it there."
                )
            new = _replace(schedule, **fields)
            check_policies(new)
            if factory is not None and fields.keys() & {"kind", "payload"}:
                factory.new_job(new.kind, msgspec.json.decode(new.payload))
                own = factory.schedule_fields(new.kind)
                if own or new.kind != schedule.kind:  # without an app, the options of the same handler stay
                    new = _replace(new, backoff=own.get("backoff"), tags=own.get("tags", ()))
            if _timing_differs(schedule, new):
                check_timing(new, self._shortest)
                if next_instant(_replace(new, since=0), now) is None:
                    raise BadOption(f"Schedule {name} would never fire: its end_at is in the past.", option="end_at")
            return new

        return await self._change(name, edited)

    async def pause(self, name: str) -> Schedule:
        return await self._change(name, lambda schedule, _: _replace(schedule, enabled=False))

    async def resume(self, name: str) -> Schedule:
        """Ticks of the time when it was paused are not made up for."""
        now = await self._store.now()
        if await self.ahead(await self.get(name), now) is not None:
            # The store keeps its decisions until the schedule is disarmed.
            paused = await self._change(name, lambda schedule, _: _replace(schedule, enabled=False))
            await self._store.disarm(name, paused.revision)
            return await self._change(name, lambda schedule, now: _replace(schedule, enabled=True, since=now))
        return await self._change(name, lambda schedule, _: _replace(schedule, enabled=True))

    async def remove(self, name: str) -> Schedule:
        """Remove and return it. Raises NotPossible while it is declared elsewhere."""
        while True:
            record = await self._fetch(name)
            schedule = decode(record.data)
            if not schedule.is_managed and schedule.is_declared:
                raise NotPossible(
                    f"Cannot remove schedule {name}: it is declared in {_place(schedule.origin)} and would come back. "
                    "Remove it there first, or pause it."
                )
            if await self._store.remove(COLLECTION, name, expect=record.version):
                # By revision: a new schedule of that name may exist by now.
                await self._store.disarm(name, schedule.revision)
                await self._announce(name)
                return schedule

    async def run(self, name: str) -> str:
        """Insert its job now, independent of its ticks; returns the id of the job."""
        schedule = await self.get(name)
        [inserted] = await self._store.insert([schedule.job(str(uuid_utils.uuid7()))])
        return inserted.id

    # Declare

    async def declare(self, origin: str, schedules: Sequence[Schedule]) -> Declared:
        """Declare these schedules, and no others, at `origin` ("file" or "code:<app>"). An operator's pause stays."""
        before = {schedule.name: schedule for schedule in await self.all()}
        outcome: dict[str, list[str]] = {"added": [], "changed": [], "unchanged": []}
        refused: dict[str, str] = {}
        for schedule in schedules:
            declared = _replace(schedule, origin=origin, is_declared=True)
            try:
                check_policies(declared)
                check_timing(declared, self._shortest)
                outcome[await self._declare(declared, before.get(schedule.name))].append(schedule.name)
            except (BadOption, NotPossible) as error:
                refused[schedule.name] = str(error)
        names = {schedule.name for schedule in schedules}
        gone = [each for each in before.values() if each.origin == origin and each.name not in names]
        for each in gone:
            if each.is_declared:
                with contextlib.suppress(NotFound):  # removed meanwhile
                    await self._change(each.name, lambda schedule, _: _replace(schedule, is_declared=False))
        return Declared(
            **{word: tuple(names) for word, names in outcome.items()},
            gone=tuple(each.name for each in gone),
            refused=refused,
        )

    async def _declare(self, declared: Schedule, before: Schedule | None) -> str:
        if before is None and await self._insert(declared, await self._store.now()) is not None:
            return "added"
        revision = 0 if before is None else before.revision

        def redeclared(schedule: Schedule, _: Instant) -> Schedule:
            nonlocal revision
            revision = schedule.revision
            if schedule.origin != declared.origin:
                other = f"of {_place(schedule.origin)}"
                by = "managed by the API and the command line" if schedule.is_managed else other
                raise NotPossible(f"a schedule of that name exists, {by}. Rename or remove one of the two.")
            fields = {field: getattr(declared, field) for field in DECLARED}
            if schedule.declared_enabled != declared.declared_enabled:
                fields["enabled"] = declared.declared_enabled
            return _replace(schedule, **fields)

        try:
            after = await self._change(declared.name, redeclared)
        except NotFound:  # removed since
            return await self._declare(declared, None)
        return "unchanged" if after.revision == revision else "changed"

    # Write

    async def _insert(self, schedule: Schedule, now: Instant) -> Schedule | None:
        new = _replace(schedule, since=now, revision=now, created_at=now, changed_at=now)
        if await self._store.put(COLLECTION, new.name, _encode(new), expect=0) is None:
            return None
        # A process that removed a schedule of that name may have died before this step.
        await self._store.disarm(new.name, new.revision - 1)
        await self._take_effect(new)
        return new

    async def _change(self, name: str, change: Callable[[Schedule, Instant], Schedule]) -> Schedule:
        while True:
            record = await self._fetch(name)
            old = decode(record.data)
            now = await self._store.now()
            new = change(old, now)
            if new == old:
                return old
            is_other_timing = _timing_differs(old, new) or (new.enabled and not old.enabled)
            since = now if is_other_timing else new.since
            revision = max(old.revision + 1, now)
            has_moved = old.has_moved or new.queue != old.queue
            new = _replace(new, since=since, revision=revision, changed_at=now, has_moved=has_moved)
            if await self._store.put(COLLECTION, name, _encode(new), expect=record.version) is not None:
                await self._take_effect(new)
                return new

    async def _take_effect(self, schedule: Schedule) -> None:
        """Arm the new revision: the store rejects ticks of earlier ones, and schedulers notice within a second."""
        name = schedule.name
        if not await self._store.arm(name, schedule.revision, schedule.since):
            record = await self._store.fetch(COLLECTION, name)
            if record is not None and decode(record.data).revision == schedule.revision:
                # Unchanged since: what is armed belongs to a removed schedule, from when the clock was ahead.
                await self._store.disarm(name)
                await self._store.arm(name, schedule.revision, schedule.since)
        await self._announce(name)

    async def _announce(self, name: str) -> None:
        number = await self._store.append(LOG, name.encode())
        if number % TRIM_EVERY == 0:
            await self._store.trim(LOG, number - LOG_KEPT)

    async def _fetch(self, name: str) -> Record:
        record = await self._store.fetch(COLLECTION, name)
        if record is None:
            raise NotFound(f"Schedule {name} not found.")
        return record


async def first_instants(coming: Iterator[Instant], count: int) -> list[Instant]:
    """Computed in a thread: a rare expression takes long, and would block the event loop."""
    return await asyncio.to_thread(lambda: list(islice(coming, count)))


async def view_of(store: Store, schedule: Schedule) -> ScheduleView:
    now = await store.now()
    return schedule_view(schedule, now, await Schedules(store).ahead(schedule, now))


async def views_of(store: Store, found: Sequence[Schedule], after: str | None = None) -> list[ScheduleView]:
    """As the API shows them: views of a contiguous page of schedules, sorted by name, that begins after `after`."""
    if not found:
        return []
    now = await store.now()
    decided = {each.schedule: each.decided_until async for each in every_armed(store, after, found[-1].name)}
    ahead = {name: until for name, until in decided.items() if until > now + AHEAD}
    return [schedule_view(each, now, ahead.get(each.name)) for each in found]


async def every_armed(store: Store, after: str | None = None, last: str | None = None) -> AsyncIterator[ArmedSchedule]:
    """All armed schedules by name, up to `last`."""
    while page := await store.armed(PAGE, after):
        for each in page:
            yield each
        after = page[-1].schedule
        if len(page) < PAGE or (last is not None and after >= last):
            return


def _timing_differs(old: Schedule, new: Schedule) -> bool:
    return any(getattr(old, word) != getattr(new, word) for word in TIMING)


def _place(origin: str) -> str:
    """
    >>> _place("file"), _place("code:shop.jobs:yard")
    ('jobyard.yaml', 'the code of shop.jobs:yard')
    """
    return "jobyard.yaml" if origin == "file" else f"the code of {origin.removeprefix('code:')}"
