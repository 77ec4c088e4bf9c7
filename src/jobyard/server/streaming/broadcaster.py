"""Broadcaster of live events: one reader of the store serves all streams of the server."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import OrderedDict, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import NamedTuple, TypeAlias

import msgspec

from jobyard.api.schemas.charts import StatsView
from jobyard.api.schemas.events import STATS
from jobyard.domain.instant import Instant
from jobyard.domain.job import Job
from jobyard.domain.redaction import redacted
from jobyard.domain.tags import SUBMITTED_BY
from jobyard.errors import StoreError
from jobyard.live_events.event import NOTICE_SECONDS, LiveEvent, LiveEventType
from jobyard.live_events.poller import BATCH, JobPoller, QueuePoller, jobs_by_id
from jobyard.live_events.reader import LiveEventReader
from jobyard.ports.admin_store import QueueInfo
from jobyard.ports.store import Store
from jobyard.server.streaming.encoding import live_event_message, message, queue_message
from jobyard.server.streaming.ordering import EventSorter
from jobyard.server.streaming.subscriber import Subscriber, Subscription
from jobyard.server.streaming.throttle import Throttle

log = logging.getLogger("jobyard.http")

# Changes are promised within 100 ms: with a longer interval they would be late.
POLL_SECONDS = 0.05
# Interval of the slower polls: queue counts, watched jobs and the tokens of subscribers.
SLOW_POLL_SECONDS = 1.0
# The first subscriber waits this long for its snapshot, until all publishers have noticed that there is a reader.
# Without it, events between the snapshot and that moment are lost.
PUBLISHERS_NOTICE_SECONDS = NOTICE_SECONDS * 1.5
STORE_RETRY_SECONDS = 1.0
MAX_OWNERS = 10_000  # jobs whose owner is remembered
_number = attrgetter("number")
# By the id of a token, and the cookie of a session that it opened.
IsValid: TypeAlias = Callable[[str, str | None], Awaitable[bool]]


class EventUpdate(NamedTuple):
    """An event and its recipients: subscribers of all jobs get published events, those of one job get new ones."""

    event: LiveEvent
    is_published: bool = True  # false: found by polling a watched job
    is_new: bool = True  # to the subscribers of that job


class EncodedEvent(NamedTuple):
    number: int
    event: LiveEvent
    text: bytes
    redacted: bytes  # for subscribers that may not see secrets


class Broadcaster:
    """Reads live events while there are subscribers, and offers each one what it wants and may see.

    `is_valid` says whether the token with this id, and the session if there is one, are still valid. All streams end
    soon after `draining` is set.
    """

    def __init__(self, store: Store, draining: asyncio.Event, is_valid: IsValid) -> None:
        self.name = f"server-{secrets.token_hex(4)}"
        self.source = f"jobyard/{self.name}"
        self.is_store_away = False
        self._store = store
        self._draining = draining
        self._is_valid = is_valid
        self._reader = LiveEventReader(store, self.name)
        self._jobs = JobPoller(store)
        self._queues = QueuePoller(store)
        self._sorter = EventSorter()
        self._subscribers: dict[Subscription, set[Subscriber]] = {}
        self._owners: OrderedDict[str, str | None] = OrderedDict()
        self._throttles: dict[Subscription, Throttle] = {}
        self._task: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._last_id = 0
        self._now: Instant = 0
        self._slow_poll_at = 0.0
        # The numbers of the overview, for a scope of queues; set by the server.
        self.read_stats: Callable[[Sequence[str]], Awaitable[StatsView]] | None = None
        self._last_stats: dict[frozenset[str], StatsView] = {}

    def __len__(self) -> int:
        return sum(len(subscribers) for subscribers in self._subscribers.values())

    @property
    def is_running(self) -> bool:
        return self._task is not None

    def next_id(self) -> int:
        """Ascending ids, derived from the clock of the store, so that they also ascend across restarts and servers."""
        self._last_id += 1
        return self._last_id

    async def join(self, subscriber: Subscriber) -> None:
        """Collect events for the subscriber from now on. Its snapshot must be read after this returns."""
        async with self._starting:
            if self._task is None:
                await self._start()
                self._task = asyncio.get_running_loop().create_task(self._run())
            self._subscribers.setdefault(subscriber.subscription, set()).add(subscriber)

    def watch(self, job: Job) -> None:
        """Poll this job until `unwatch`, for changes after the given state of it."""
        self._jobs.add(job)

    def unwatch(self, job_id: str) -> None:
        self._jobs.remove(job_id)

    def leave(self, subscriber: Subscriber) -> None:
        subscriber.end()
        subscribers = self._subscribers.get(subscriber.subscription, set())
        subscribers.discard(subscriber)
        if not subscribers:
            self._subscribers.pop(subscriber.subscription, None)
            self._throttles.pop(subscriber.subscription, None)

    def end_all(self) -> None:
        for subscriber in self._all():
            subscriber.end()

    def end_session(self, session: str) -> None:
        """End the streams of a session that is logged out."""
        for subscriber in self._all():
            if subscriber.session == session:
                subscriber.revoke()

    def end_token(self, token_id: str) -> None:
        """End the streams of a revoked token, and of the sessions that it opened."""
        for subscriber in self._all():
            if subscriber.principal_id == token_id:
                subscriber.revoke()

    def _all(self) -> list[Subscriber]:
        return [subscriber for subscribers in self._subscribers.values() for subscriber in subscribers]

    # The loop, which runs while there are subscribers

    async def _start(self) -> None:
        await self._reader.start()
        await asyncio.sleep(PUBLISHERS_NOTICE_SECONDS)
        await self._queues.poll()  # discards the first changes: a snapshot contains all queues
        self._now = await self._store.now()
        self._last_id = max(self._last_id, self._now * 1000)

    async def _run(self) -> None:
        try:
            while self._subscribers:
                await self._run_once()
                await asyncio.sleep(POLL_SECONDS)
        except Exception:
            log.exception("live events stopped by an unexpected error; all streams are closed")
            self.end_all()
        async with self._starting:
            with suppress(StoreError):
                await self._reader.stop()
            self._task = None
            if any(not subscriber.is_over for subscriber in self._all()):  # they joined meanwhile
                self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run_once(self) -> None:
        if self._draining.is_set():
            self.end_all()
            return
        try:
            if self.is_store_away:
                await self._start()
                self.is_store_away = False
                await self._broadcast([EventUpdate(LiveEvent(type=LiveEventType.RESYNC))])
            await self._reader.announce()
            is_slow_poll = _loop_time() >= self._slow_poll_at
            published = self._sorter.sorted(await self._reader.read())
            updates = [EventUpdate(event, is_new=self._jobs.is_new(event)) for event in published]
            if is_slow_poll:
                polled = await self._jobs.poll(list(self._jobs.ids))
                updates += [EventUpdate(event, is_published=False) for event in polled]
            await self._broadcast(updates, await self._slow_poll() if is_slow_poll else [])
            if is_slow_poll:
                await self._offer_stats()
        except StoreError as error:
            if not self.is_store_away:
                log.warning("live events are interrupted until the store is available: %s", error)
            self.is_store_away = True
            with suppress(TimeoutError):
                async with asyncio.timeout(STORE_RETRY_SECONDS):
                    await self._draining.wait()

    async def _slow_poll(self) -> list[QueueInfo]:
        self._slow_poll_at = _loop_time() + SLOW_POLL_SECONDS
        self._now = await self._store.now()
        await self._end_revoked()
        is_wanted = any(subscription.wants_queues for subscription in self._subscribers)
        return await self._queues.poll() if is_wanted else []

    async def _end_revoked(self) -> None:
        """End the streams whose token or session is no longer valid."""
        holders = {(subscriber.principal_id, subscriber.session) for subscriber in self._all()}
        valid = {holder: await self._is_valid(*holder) for holder in holders}
        for subscriber in self._all():
            if not valid.get((subscriber.principal_id, subscriber.session), True):
                subscriber.revoke()

    async def _offer_stats(self) -> None:
        """Send the numbers of the overview, when they have changed, to the subscribers that requested them."""
        wanted = [(each, subscribers) for each, subscribers in self._subscribers.items() if each.wants_stats]
        if self.read_stats is None or not wanted:
            self._last_stats.clear()
            return
        for scope in {each.queues for each, _ in wanted}:
            stats = await self.read_stats(sorted(scope))
            same = msgspec.structs.replace(stats, at="")
            if self._last_stats.get(scope) == same:
                continue
            self._last_stats[scope] = same
            chunk = message(self.next_id(), self.source, STATS, self._now, stats)
            for each, subscribers in wanted:
                if each.queues == scope:
                    for subscriber in list(subscribers):
                        subscriber.offer(chunk)

    # Broadcasting

    async def _broadcast(self, updates: Sequence[EventUpdate], queues: Sequence[QueueInfo] = ()) -> None:
        if not updates and not queues and not any(throttle.has_dropped for throttle in self._throttles.values()):
            return
        if any(subscription.own_tag is not None for subscription in self._subscribers):
            await self._learn_owners([update.event for update in updates])
        published: list[EncodedEvent] = []
        without_job: list[EncodedEvent] = []
        of_job: dict[str, list[EncodedEvent]] = defaultdict(list)
        for update in updates:
            number, event = self.next_id(), update.event
            encoded = self._encoded(number, event)
            if update.is_published:
                published.append(encoded)
            if not event.job_id:
                without_job.append(encoded)
            elif update.is_new:
                of_job[event.job_id].append(encoded)
        changed = [(info.name, queue_message(self.next_id(), self.source, info, self._now)) for info in queues]
        streams = len(self)
        for subscription, subscribers in list(self._subscribers.items()):
            job_id = subscription.job_id
            events = published if job_id is None else [*without_job, *of_job.get(job_id, ())]
            wanted = [each for each in sorted(events, key=_number) if self._is_for(subscription, each.event)]
            texts = [each.redacted if subscription.hides_secrets else each.text for each in wanted]
            if job_id is None:
                texts = self._throttled(subscription, texts, streams)
            texts += [text for name, text in changed if subscription.wants_queue(name)]
            if texts:
                chunk = b"".join(texts)
                for subscriber in list(subscribers):
                    subscriber.offer(chunk)

    def _encoded(self, number: int, event: LiveEvent) -> EncodedEvent:
        text = live_event_message(number, self.source, event, self._now)
        if event.data is None or not any(subscription.hides_secrets for subscription in self._subscribers):
            return EncodedEvent(number, event, text, text)
        redacted_event = msgspec.structs.replace(event, data=redacted(event.data))
        return EncodedEvent(number, event, text, live_event_message(number, self.source, redacted_event, self._now))

    def _throttled(self, subscription: Subscription, texts: list[bytes], streams: int) -> list[bytes]:
        now = _loop_time()
        throttle = self._throttles.setdefault(subscription, Throttle(now))
        kept = throttle.take(texts, streams, now)
        if throttle.take_resync():
            resync = LiveEvent(type=LiveEventType.RESYNC)
            kept.append(live_event_message(self.next_id(), self.source, resync, self._now))
        return kept

    def _is_for(self, subscription: Subscription, event: LiveEvent) -> bool:
        if not subscription.wants(event):
            return False
        own_tag = subscription.own_tag
        return own_tag is None or not event.job_id or self._owners.get(event.job_id) == own_tag

    async def _learn_owners(self, events: Sequence[LiveEvent]) -> None:
        """Read the owner tags of unknown jobs: an event does not contain them."""
        unknown = list({event.job_id for event in events if event.job_id and event.job_id not in self._owners})
        for start in range(0, len(unknown), BATCH):
            some = unknown[start : start + BATCH]
            jobs = await jobs_by_id(self._store, some)
            for job_id in some:
                tags = jobs[job_id].tags if job_id in jobs else ()
                self._owners[job_id] = next((tag for tag in tags if tag.startswith(SUBMITTED_BY)), None)
        while len(self._owners) > MAX_OWNERS:
            self._owners.popitem(last=False)


def _loop_time() -> float:
    return asyncio.get_running_loop().time()
