"""Schedules for the command line: on the store itself, or through a server, in the same words."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

import click
import msgspec

from jobyard.api.schemas.jobs import KindList
from jobyard.api.schemas.schedules import NextTicksResponse, ScheduleView, TickView, next_ticks_response, tick_view
from jobyard.app.job_factory import make_job
from jobyard.cli.session import Session, server_yard
from jobyard.domain.access import OWNER
from jobyard.domain.instant import Instant
from jobyard.errors import NotFound, UnknownKind, did_you_mean
from jobyard.operations.audit import Audit
from jobyard.operations.schedule_views import view_of, views_of
from jobyard.operations.schedules import Schedules, definition
from jobyard.operations.submit import AnyKind, MakeJob

if TYPE_CHECKING:
    from jobyard.client import Client
    from jobyard.ports.store import Store


class Desk(Protocol):
    """What `jobyard cron` needs; each change is written down by whoever makes it."""

    def all(self) -> AsyncIterator[ScheduleView]: ...

    async def get(self, name: str) -> ScheduleView: ...

    async def add(self, words: dict[str, Any]) -> ScheduleView: ...

    async def edit(self, name: str, words: dict[str, Any]) -> ScheduleView: ...

    async def pause(self, name: str) -> ScheduleView: ...

    async def resume(self, name: str) -> ScheduleView: ...

    async def remove(self, name: str) -> None: ...

    async def run(self, name: str) -> str: ...

    async def next(self, name: str, count: int) -> NextTicksResponse: ...

    def history(self, name: str) -> AsyncIterator[TickView]: ...

    async def now(self) -> Instant: ...

    async def fits(self, kind: str, payload: Any) -> None:
        """Raises BadInput when no handler can take that, as far as it is known here."""
        ...


@asynccontextmanager
async def schedules(session: Session, *, makes_store: bool = False) -> AsyncIterator[Desk]:
    """`makes_store`: the first schedule may come before the first job."""
    async with AsyncExitStack() as stack:
        desk = await stack.enter_async_context(_desk(session, makes_store=makes_store))
        try:
            yield desk
        except NotFound as error:
            name = str(click.get_current_context().params.get("name", ""))
            hint = did_you_mean(name, [each.name async for each in desk.all()])
            raise NotFound(f"{error}{hint or ' `jobyard cron` lists them.'}") from error


@asynccontextmanager
async def _desk(session: Session, *, makes_store: bool) -> AsyncIterator[Desk]:
    if session.far is not None:
        async with server_yard(session.far.url) as far:
            yield ServerDesk(far.client)
        return
    async with AsyncExitStack() as stack:
        if makes_store:
            yard = session.yard()
            await stack.enter_async_context(session.opened(yard))
        else:
            yard = await stack.enter_async_context(session.operator(near=True))
        shortest = session.configuration.scheduler.shortest_interval_seconds
        yield StoreDesk(yard.store, Schedules(yard.store, shortest), job_maker(session))


def job_maker(session: Session) -> MakeJob:
    return AnyKind() if session.app_name is None else make_job(session.app(), has_app=True)


class StoreDesk:
    """On the store itself, by its owner."""

    def __init__(self, store: Store, schedules: Schedules, make: MakeJob) -> None:
        self._store = store
        self._schedules = schedules
        self._make = make
        self._audit = Audit(store)

    async def now(self) -> Instant:
        return await self._store.now()

    async def all(self) -> AsyncIterator[ScheduleView]:
        for each in await views_of(self._store, await self._schedules.all()):
            yield each

    async def get(self, name: str) -> ScheduleView:
        return await view_of(self._store, await self._schedules.get(name))

    async def fits(self, kind: str, payload: Any) -> None:
        self._make(kind, payload, {})

    async def add(self, words: dict[str, Any]) -> ScheduleView:
        given: dict[str, Any] = {word: words[word] for word in ("queue", "group", "priority") if word in words}
        job = self._make(words["kind"], words.get("payload", {}), given)
        words = {**words, "queue": job.queue, "group": job.group, "priority": job.priority}
        made = await self._schedules.add(definition(words))
        await self._note("add", made.name, expression=made.expression, timezone=made.timezone, kind=made.kind)
        return await view_of(self._store, made)

    async def edit(self, name: str, words: dict[str, Any]) -> ScheduleView:
        if "kind" in words or "payload" in words:
            found = await self._schedules.get(name)
            payload = words.get("payload", msgspec.json.decode(found.payload))
            await self.fits(words.get("kind", found.kind), payload)
        made = await self._schedules.edit(name, words)
        await self._note("edit", name, changed=", ".join(words))
        return await view_of(self._store, made)

    async def pause(self, name: str) -> ScheduleView:
        made = await self._schedules.pause(name)
        await self._note("pause", name)
        return await view_of(self._store, made)

    async def resume(self, name: str) -> ScheduleView:
        made = await self._schedules.resume(name)
        await self._note("resume", name)
        return await view_of(self._store, made)

    async def remove(self, name: str) -> None:
        found = await self._schedules.remove(name)
        await self._note("remove", name, expression=found.expression, kind=found.kind)

    async def run(self, name: str) -> str:
        job_id = await self._schedules.run(name)
        await self._note("run", name, job=job_id)
        return job_id

    async def next(self, name: str, count: int) -> NextTicksResponse:
        found = await self._schedules.get(name)
        return next_ticks_response(found.expression, found.timezone, await self._schedules.next(name, count))

    async def history(self, name: str) -> AsyncIterator[TickView]:
        for each in await self._schedules.history(name, 100):
            yield tick_view(each)

    async def _note(self, action: str, name: str, **details: Any) -> None:
        await self._audit.record(OWNER, f"schedule.{action}", name, details)


class ServerDesk:
    """From afar; the server writes its audit log itself."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.all = client.schedules
        self.get = client.schedule
        self.pause = client.pause_schedule
        self.resume = client.resume_schedule
        self.remove = client.remove_schedule
        self.run = client.run_schedule
        self.next = client.next_of_schedule
        self.history = client.schedule_history
        self._kinds: KindList | None = None

    async def now(self) -> Instant:
        return self._client._transport.now()

    async def add(self, words: dict[str, Any]) -> ScheduleView:
        return await self._client.add_schedule(**words)

    async def edit(self, name: str, words: dict[str, Any]) -> ScheduleView:
        return await self._client.edit_schedule(name, **words)

    async def fits(self, kind: str, payload: Any) -> None:
        """The payload is judged by the server when it is handed in."""
        if self._kinds is None:
            self._kinds = await self._client.kinds()
        known = [each.name for each in self._kinds.items]
        if not self._kinds.any_kind and kind not in known:
            raise UnknownKind(f"There is no kind {kind}.{did_you_mean(kind, known)}")
