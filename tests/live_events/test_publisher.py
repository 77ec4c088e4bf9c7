"""Live events reach other processes, and cost next to nothing without listeners."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support import ROOT, Events, Watched, eventually

from jobyard import Cancel, Context, Jobyard
from jobyard.config.store_factory import make_store
from jobyard.domain import events as e
from jobyard.domain.job import Ending, Progress, State
from jobyard.domain.lease import Lease
from jobyard.domain.retry import DEFAULT_BACKOFF
from jobyard.errors import StoreUnavailable
from jobyard.live_events import publisher as module
from jobyard.live_events.event import COLLECTION, LISTENERS, NOTICE_SECONDS, LiveEvent, LiveEventType, unpack
from jobyard.live_events.publisher import MAX_PENDING_EVENTS, LiveEventPublisher
from jobyard.observability.composite import CompositeObserver
from jobyard.ports.store import Store

ELSEWHERE = """
import asyncio, pathlib, sys
from jobyard import Context, Jobyard

yard = Jobyard(sys.argv[1])

@yard.job()
async def work(ctx: Context) -> None:
    for number in range(20):
        await ctx.progress(number)
        await asyncio.sleep(0.06)
    while not pathlib.Path(sys.argv[2]).exists():
        await asyncio.sleep(0.01)

async def main() -> None:
    async with yard, yard.worker():
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def published(store: Store) -> list[LiveEvent]:
    return [event for record in await store.fetch_all(COLLECTION) for event in unpack(record.data)]


@pytest.fixture(params=["memory", "sqlite"])
async def watched(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Watched]:
    store = make_store("memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db")
    await store.open()
    yield Watched(store)
    await store.close()


@pytest.fixture
async def heard(watched: Watched) -> AsyncIterator[LiveEventPublisher]:
    """A publisher with a listener."""
    store = watched.as_store()
    await store.put(LISTENERS, "me", b"{}", expire_seconds=60)
    publisher = LiveEventPublisher(store, "source")
    await publisher.start()
    await eventually(lambda: publisher.has_listeners)
    yield publisher
    await publisher.stop()
    await publisher.stop()


@contextlib.contextmanager
def worker_elsewhere(url: str, may_end: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", ELSEWHERE, url, str(may_end)]
    process = subprocess.Popen(command, env={"PYTHONPATH": str(ROOT / "src")})
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def test_progress_in_one_process_is_seen_in_another_while_the_job_runs(tmp_path: Path) -> None:
    url, may_end = f"sqlite:///{tmp_path}/jobs.db", tmp_path / "may-end"
    async with Jobyard(url) as yard:

        @yard.job()
        async def work(ctx: Context) -> None: ...

        await yard.store.put(LISTENERS, "me", b"{}", expire_seconds=60)
        with worker_elsewhere(url, may_end) as process:
            await work.enqueue()
            seen: set[float] = set()

            async def sees(kind: LiveEventType, percent: float | None = None) -> bool:
                assert process.poll() is None
                events_ = await published(yard.store)
                seen.update(event.percent or 0.0 for event in events_ if event.type is LiveEventType.PROGRESS)
                return any(event.type is kind and event.percent == percent for event in events_)

            await eventually(lambda: sees(LiveEventType.PROGRESS, 19.0))
            may_end.touch()
            await eventually(lambda: sees(LiveEventType.COMPLETED))
    assert len(seen) >= 10


async def test_events_of_a_job_are_published_in_order(watched: Watched) -> None:
    store = watched.as_store()
    await store.put(LISTENERS, "me", b"{}", expire_seconds=60)
    async with Jobyard(store=store, observer=Events()) as yard:
        # Without a backoff the next attempt may start before this one's settlement is acknowledged.
        @yard.job(max_attempts=2, backoff=0.3, group="g")
        async def shaky(ctx: Context) -> None:
            await ctx.progress(50, "half", {"rows": 1})
            if ctx.attempt == 1:
                raise RuntimeError("no")

        @yard.job()
        async def leaves(ctx: Context) -> Cancel:
            return Cancel("enough")

        async def is_publishing() -> bool:
            # Events before the publisher's first check for listeners are dropped.
            await leaves.enqueue()
            return bool(await published(store))

        async with yard.worker():
            before = await store.now()
            await eventually(is_publishing)
            first = await shaky.enqueue()
            await first.result(60)
            second = await leaves.enqueue()
            await eventually(lambda: second_ended(yard, second.id))
        events_ = await published(store)
    of_first = [event for event in events_ if event.job_id == first.id]
    assert [event.type for event in of_first] == [
        *(LiveEventType.STARTED, LiveEventType.PROGRESS, LiveEventType.RETRYING),
        *(LiveEventType.STARTED, LiveEventType.PROGRESS, LiveEventType.COMPLETED),
    ]
    assert [event.attempt for event in of_first] == [1, 1, 1, 2, 2, 2]
    assert {(event.kind, event.queue, event.group) for event in of_first} == {("shaky", "default", "g")}
    assert (of_first[1].percent, of_first[1].message, of_first[1].data) == (50, "half", {"rows": 1})
    assert (of_first[2].state, of_first[2].reason) == (State.PENDING, "no")
    assert [(event.type, event.reason) for event in events_ if event.job_id == second.id][1:] == [
        (LiveEventType.CANCELLED, "enough")
    ]
    assert all(before - 100 <= event.at <= before + 60_000 for event in events_)


async def second_ended(yard: Jobyard, job_id: str) -> bool:
    return (await yard.get(job_id)).state.is_final


async def test_nothing_is_written_without_listeners(watched: Watched) -> None:
    async with Jobyard(store=watched.as_store()) as yard:

        @yard.job()
        async def work(ctx: Context) -> None:
            await ctx.progress(50)

        async with yard.worker():
            await eventually(lambda: watched.calls["fetch_all"] >= 1)
            began, asked = time.monotonic(), watched.calls["fetch_all"]
            while time.monotonic() < began + 1:
                await (await work.enqueue()).result(60)
            busy = watched.calls["fetch_all"] - asked
            assert busy <= (time.monotonic() - began) / NOTICE_SECONDS + 1
            began, asked = time.monotonic(), watched.calls["fetch_all"]
            await eventually(lambda: watched.calls["fetch_all"] >= asked + 3)
            assert time.monotonic() - began > 2, "nothing to tell: once a second"
    assert watched.calls[f"put {COLLECTION}"] == 0


async def test_events_right_after_a_listener_starts_are_published(watched: Watched) -> None:
    store, publisher = watched.as_store(), LiveEventPublisher(watched.as_store(), "source")
    await publisher.start()
    for turn in range(3):
        await eventually(lambda: publisher.wants_each_job)  # its last look is too long ago to be relied on
        await store.put(LISTENERS, "me", b"{}", expire_seconds=60)
        await eventually(lambda: publisher.wants_each_job)  # unless it looked once more just before that
        publisher.publish(LiveEvent(type=LiveEventType.ENQUEUED, job_id=f"job {turn}"))
        await eventually(lambda turn=turn: last_told(store, f"job {turn}"))  # type: ignore[misc]
        await store.remove(LISTENERS, "me")
        await eventually(lambda: not publisher.has_listeners)
    await publisher.stop()


async def last_told(store: Store, job_id: str) -> bool:
    return [event.job_id for event in await published(store)][-1:] == [job_id]


async def test_a_slow_look_does_not_speak_for_what_happens_during_it(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, publisher = watched.as_store(), LiveEventPublisher(watched.as_store(), "source")
    fetch_all, asked, go_on = watched.fetch_all, asyncio.Event(), asyncio.Event()

    async def slow(*words: Any) -> Any:
        found = await fetch_all(*words)  # no listener at this moment
        asked.set()
        await go_on.wait()
        return found

    await publisher.check_listeners()  # begins
    monkeypatch.setattr(watched, "fetch_all", slow, raising=False)
    await publisher.start()
    await asked.wait()
    await store.put(LISTENERS, "me", b"{}", expire_seconds=60)
    began = time.monotonic()
    await eventually(lambda: time.monotonic() > began + NOTICE_SECONDS)
    publisher.publish(LiveEvent(type=LiveEventType.ENQUEUED, job_id="a"))
    monkeypatch.setattr(watched, "fetch_all", fetch_all, raising=False)
    go_on.set()
    await eventually(lambda: last_told(store, "a"))
    await publisher.stop()


async def test_publishing_ends_with_the_last_listener(heard: LiveEventPublisher, watched: Watched) -> None:
    store = watched.as_store()
    heard.publish(LiveEvent(type=LiveEventType.ENQUEUED, job_id="a"))
    await eventually(lambda: published(store))
    await store.remove(LISTENERS, "me")
    await eventually(lambda: not heard.has_listeners)
    puts = watched.calls["put"]
    heard.publish(LiveEvent(type=LiveEventType.ENQUEUED, job_id="b"))
    await heard.stop()
    assert watched.calls["put"] == puts


async def test_events_are_batched_and_the_latest_progress_wins(heard: LiveEventPublisher, watched: Watched) -> None:
    store = watched.as_store()
    for percent in range(50):
        heard.publish(LiveEvent(type=LiveEventType.PROGRESS, job_id="a", percent=percent))
        heard.publish(LiveEvent(type=LiveEventType.PROGRESS, job_id="b", percent=percent))
    events_ = await eventually(lambda: published(store))
    assert [(event.job_id, event.percent) for event in events_] == [("a", 49), ("b", 49)]
    assert all(event.at for event in events_)
    assert len(await store.fetch_all(COLLECTION)) == 1


async def test_excess_events_are_dropped_and_a_resync_is_published(heard: LiveEventPublisher, watched: Watched) -> None:
    store = watched.as_store()
    for number in range(3 * MAX_PENDING_EVENTS):
        heard.publish(LiveEvent(type=LiveEventType.STARTED, job_id=str(number)))
    wanted_when_full = heard.wants_each_job
    events_ = await eventually(lambda: published(store))
    assert [event.type for event in events_] == [LiveEventType.STARTED] * MAX_PENDING_EVENTS + [LiveEventType.RESYNC]
    assert (wanted_when_full, heard.wants_each_job) == (False, True)
    # Another flood right after it: a RESYNC follows later, without further events.
    for number in range(3 * MAX_PENDING_EVENTS):
        heard.publish(LiveEvent(type=LiveEventType.STARTED, job_id=str(number)))

    async def resyncs() -> bool:
        return [event.type for event in await published(store)].count(LiveEventType.RESYNC) == 2

    await eventually(resyncs)


async def test_a_failing_store_does_not_stop_callers(heard: LiveEventPublisher, watched: Watched) -> None:
    store = watched.as_store()
    watched.failing, watched.failing_verbs = StoreUnavailable("away"), ("put", "fetch_all")
    heard.publish(LiveEvent(type=LiveEventType.ENQUEUED, job_id="lost"))
    puts = watched.calls["put"]
    await eventually(lambda: watched.calls["put"] > puts)
    watched.failing = None

    async def is_said() -> bool:
        events_ = await published(store)
        return [event.type for event in events_] == [LiveEventType.RESYNC]

    await eventually(is_said)


async def test_other_threads_may_publish(heard: LiveEventPublisher, watched: Watched) -> None:
    event = LiveEvent(type=LiveEventType.ENQUEUED, job_id="a")
    thread = threading.Thread(target=heard.publish, args=(event,))
    thread.start()
    await asyncio.to_thread(thread.join)
    events_ = await eventually(lambda: published(watched.as_store()))
    assert [event.job_id for event in events_] == ["a"]


async def test_pending_events_are_published_on_stop(
    heard: LiveEventPublisher, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PUBLISH_EVERY_SECONDS", 0.2)
    heard.publish(LiveEvent(type=LiveEventType.ENQUEUED, job_id="a"))
    await eventually(lambda: published(watched.as_store()))
    heard.publish(LiveEvent(type=LiveEventType.ENQUEUED, job_id="b"))
    await heard.stop()
    assert [event.job_id for event in await published(watched.as_store())] == ["a", "b"]


def test_each_observer_gets_the_events_that_it_wants() -> None:
    all_, few = Events(), Events()
    few.wants_each_job = False
    several = CompositeObserver(all_, few)
    assert several.wants_each_job
    lease = Lease("a", 1, "t", "k", "q", None, 0, 1, 3, 0, b"{}", None, None, DEFAULT_BACKOFF)
    given: list[e.Event] = [
        e.JobStarted(lease),
        e.JobReported(lease, Progress(percent=1)),
        e.JobSettled(lease, State.COMPLETED, None, None, 1.0),
        e.JobSettled(lease, State.FAILED, Ending.ERROR, "no", 1.0),
        e.WorkerStopped("w", 0),
    ]
    for event in given:
        several.observe(event)
    kinds: tuple[type[e.Event], ...] = (e.JobStarted, e.JobReported, e.JobSettled, e.WorkerStopped)
    assert [len(all_.of(kind)) for kind in kinds] == [1, 1, 2, 1]
    assert [len(few.of(kind)) for kind in kinds] == [0, 0, 1, 1]
