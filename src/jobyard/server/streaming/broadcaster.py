"""Everybody who listens, served by one look at the store: a thousand streams cost little more than one."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import OrderedDict, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import NamedTuple

from jobyard.domain.instant import Instant
from jobyard.domain.job import Job
from jobyard.domain.tags import SUBMITTED_BY
from jobyard.errors import StoreError
from jobyard.live_events.event import NOTICE_SECONDS, LiveEvent, LiveEventType
from jobyard.live_events.poller import BATCH, JobPoller, QueuePoller, jobs_by_id
from jobyard.live_events.reader import LiveEventReader
from jobyard.ports.admin_store import QueueInfo
from jobyard.ports.store import Store
from jobyard.server.streaming.encoding import hint_message, queue_message
from jobyard.server.streaming.ordering import EventSorter
from jobyard.server.streaming.subscriber import Subscriber, Subscription
from jobyard.server.streaming.throttle import Throttle

log = logging.getLogger("jobyard.http")

LOOK_EVERY_SECONDS = 0.05
# The slower looks: at the queues, at the jobs that are watched, at the tokens of those who listen.
LOOK_AROUND_SECONDS = 1.0
# Whoever is the first to listen can_see its snapshot so much later, when all who have something to tell have noticed.
NOTICED_SECONDS = NOTICE_SECONDS * 1.5
WAIT_WHEN_AWAY_SECONDS = 1.0
OWNERS_REMEMBERED = 10_000
_number = attrgetter("number")


class EventUpdate(NamedTuple):
    """Who watches one job has seen how far it is, and hears what is new to it; others hear what they are told."""

    hint: LiveEvent
    is_told: bool = True  # by somebody; else it was seen by a look at a job that is watched
    is_new: bool = True  # to those who watch that job


class EncodedEvent(NamedTuple):
    number: int
    hint: LiveEvent
    text: bytes


class Broadcaster:
    """`holds`: whether the token with this id is still good; without it nobody is asked again.

    All streams end soon after `draining` is set.
    """

    def __init__(
        self, store: Store, draining: asyncio.Event, holds: Callable[[str], Awaitable[bool]] | None = None
    ) -> None:
        self.name = f"server-{secrets.token_hex(4)}"
        self.source = f"jobyard/{self.name}"
        self._store = store
        self._draining = draining
        self._holds = holds
        self._tail = LiveEventReader(store, self.name)
        self._jobs = JobPoller(store)
        self._queues = QueuePoller(store)
        self._order = EventSorter()
        self._audiences: dict[Subscription, set[Subscriber]] = {}
        self._owners: OrderedDict[str, str | None] = OrderedDict()
        self._rations: dict[Subscription, Throttle] = {}
        self._task: asyncio.Task[None] | None = None
        self._beginning = asyncio.Lock()
        self._is_away = False
        self._last_id = 0
        self._now: Instant = 0
        self._around_at = 0.0

    def __len__(self) -> int:
        return sum(len(listeners) for listeners in self._audiences.values())

    def next_id(self) -> int:
        """Ascending; after a restart, and on another server, it goes on about where the clock is."""
        self._last_id += 1
        return self._last_id

    async def join(self, listener: Subscriber) -> None:
        """From now on everything is kept for it; whoever joins looks at the store after that."""
        async with self._beginning:
            if self._task is None:
                await self._begin()
                self._task = asyncio.get_running_loop().create_task(self._run())
            self._audiences.setdefault(listener.audience, set()).add(listener)

    def watch(self, job: Job) -> None:
        """Look after this job, as it was just seen, until `unwatch`."""
        self._jobs.add(job)

    def unwatch(self, job_id: str) -> None:
        self._jobs.remove(job_id)

    def leave(self, listener: Subscriber) -> None:
        listener.end()
        listeners = self._audiences.get(listener.audience, set())
        listeners.discard(listener)
        if not listeners:
            self._audiences.pop(listener.audience, None)
            self._rations.pop(listener.audience, None)

    def end_all(self) -> None:
        for listener in self._listeners():
            listener.end()

    def _listeners(self) -> list[Subscriber]:
        return [listener for listeners in self._audiences.values() for listener in listeners]

    # The loop, which runs while somebody listens

    async def _begin(self) -> None:
        await self._tail.start()
        await asyncio.sleep(NOTICED_SECONDS)
        await self._queues.poll()  # whoever joins is shown them all anyway
        self._now = await self._store.now()
        self._last_id = max(self._last_id, self._now * 1000)

    async def _run(self) -> None:
        try:
            while self._audiences:
                await self._turn()
                await asyncio.sleep(LOOK_EVERY_SECONDS)
        except Exception:
            log.exception("live events ended by a fault; the streams are closed")
            self.end_all()
        async with self._beginning:
            with suppress(StoreError):
                await self._tail.stop()
            self._task = None
            if any(not listener.is_over for listener in self._listeners()):  # they joined meanwhile
                self._task = asyncio.get_running_loop().create_task(self._run())

    async def _turn(self) -> None:
        if self._draining.is_set():
            self.end_all()
            return
        try:
            if self._is_away:
                await self._begin()
                self._is_away = False
                await self._tell([EventUpdate(LiveEvent(type=LiveEventType.RESYNC))])
            await self._tail.announce()
            is_time = _loop_time() >= self._around_at
            told = self._order.sorted(await self._tail.read())
            news = [EventUpdate(hint, is_new=self._jobs.is_new(hint)) for hint in told]
            if is_time:
                seen = await self._jobs.poll(list(self._jobs.ids))
                news += [EventUpdate(hint, is_told=False) for hint in seen]
            await self._tell(news, await self._look_around() if is_time else [])
        except StoreError as error:
            if not self._is_away:
                log.warning("live events wait for the store: %s", error)
            self._is_away = True
            with suppress(TimeoutError):
                await asyncio.wait_for(self._draining.wait(), WAIT_WHEN_AWAY_SECONDS)

    async def _look_around(self) -> list[QueueInfo]:
        self._around_at = _loop_time() + LOOK_AROUND_SECONDS
        self._now = await self._store.now()
        await self._ask_for_tokens()
        wanted = any(audience.wants_queues for audience in self._audiences)
        return await self._queues.poll() if wanted else []

    async def _ask_for_tokens(self) -> None:
        """Whoever is no longer let in hears no more."""
        if self._holds is None:
            return
        good = {each: await self._holds(each) for each in {listener.principal_id for listener in self._listeners()}}
        for listener in self._listeners():
            if not good.get(listener.principal_id, True):
                listener.end()

    # Telling

    async def _tell(self, news: Sequence[EventUpdate], queues: Sequence[QueueInfo] = ()) -> None:
        if not news and not queues and not any(ration.is_cut for ration in self._rations.values()):
            return
        if any(audience.own_tag is not None for audience in self._audiences):
            await self._learn_owners([each.hint for each in news])
        whole: list[EncodedEvent] = []
        for_all: list[EncodedEvent] = []
        of_job: dict[str, list[EncodedEvent]] = defaultdict(list)
        for each in news:
            number = self.next_id()
            told = EncodedEvent(number, each.hint, hint_message(number, self.source, each.hint, self._now))
            if each.is_told:
                whole.append(told)
            if not each.hint.job_id:
                for_all.append(told)
            elif each.is_new:
                of_job[each.hint.job_id].append(told)
        changed = [(info.name, queue_message(self.next_id(), self.source, info, self._now)) for info in queues]
        streams = len(self)
        for audience, listeners in list(self._audiences.items()):
            near = whole if audience.job_id is None else [*for_all, *of_job.get(audience.job_id, ())]
            parts = [each.text for each in sorted(near, key=_number) if self._is_for(audience, each.hint)]
            if audience.job_id is None:
                parts = self._rationed(audience, parts, streams)
            parts += [text for name, text in changed if audience.wants_queue(name)]
            if parts:
                chunk = b"".join(parts)
                for listener in list(listeners):
                    listener.offer(chunk)

    def _rationed(self, audience: Subscription, parts: list[bytes], streams: int) -> list[bytes]:
        now = _loop_time()
        ration = self._rations.setdefault(audience, Throttle(now))
        kept = ration.cut(parts, streams, now)
        if ration.settle():
            kept.append(hint_message(self.next_id(), self.source, LiveEvent(type=LiveEventType.RESYNC), self._now))
        return kept

    def _is_for(self, audience: Subscription, hint: LiveEvent) -> bool:
        if not audience.wants(hint):
            return False
        return audience.own_tag is None or not hint.job_id or self._owners.get(hint.job_id) == audience.own_tag

    async def _learn_owners(self, hints: Sequence[LiveEvent]) -> None:
        """A hint does not say whose job it is; the job does."""
        unknown = list({hint.job_id for hint in hints if hint.job_id and hint.job_id not in self._owners})
        for start in range(0, len(unknown), BATCH):
            some = unknown[start : start + BATCH]
            jobs = await jobs_by_id(self._store, some)
            for job_id in some:
                tags = jobs[job_id].tags if job_id in jobs else ()
                self._owners[job_id] = next((tag for tag in tags if tag.startswith(SUBMITTED_BY)), None)
        while len(self._owners) > OWNERS_REMEMBERED:
            self._owners.popitem(last=False)


def _loop_time() -> float:
    return asyncio.get_running_loop().time()
