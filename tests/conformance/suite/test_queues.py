"""Queues and groups: settings, limits and counts."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from tests.conformance.support import (
    claim,
    claim_ids,
    configure,
    group_info,
    insert,
    insert_one,
    new,
    queue_info,
    running,
    settle,
)

from jobyard.domain.job import QueueSettings, Unique, UniqueScope
from jobyard.domain.outcome import Cancel, Done, Failed, Outcome, Park, TimedOut
from jobyard.errors import NotPossible
from jobyard.ports.admin_store import Action, GroupInfo, QueueInfo
from jobyard.ports.store import Store
from jobyard.testing.clock import ManualClock


async def test_queues_by_name_with_their_counts(store: Store) -> None:
    await store.configure("b", QueueSettings(max_running=50))
    outcomes: list[Outcome] = [
        Done(),
        Failed(message="no", retry=False),
        TimedOut("late"),
        Cancel("enough"),
        Park("go"),
    ]
    for outcome in outcomes:
        await settle(store, await running(store, queue="b", max_attempts=1), outcome)
    await running(store, queue="b")
    await insert(store, new(queue="b"), new(queue="b"), new(queue="b", delay_seconds=9), new(queue="a"))
    await store.set_paused("c", None, True)
    assert [info.name for info in await store.queues()] == ["a", "b", "c"]
    assert await queue_info(store, "b") == QueueInfo(
        name="b",
        settings=QueueSettings(max_running=50),
        paused=False,
        waiting=2,
        delayed=2,
        running=1,
        completed=1,
        failed=2,
        cancelled=1,
    )
    assert (await queue_info(store, "c")).paused


async def test_a_job_that_became_due_is_counted_as_waiting(store: Store, clock: ManualClock) -> None:
    await insert_one(store, group="a", delay_seconds=5)
    clock.advance(5)
    info, group = await queue_info(store), await group_info(store, "a")
    assert (info.waiting, info.delayed) == (1, 0)
    assert (group.waiting, group.delayed) == (1, 0)


async def test_groups_by_name_with_ungrouped_jobs_first(store: Store) -> None:
    await configure(store, max_per_group=7)
    await insert(store, new(group="b"), new(), new(group="a", delay_seconds=9), new(group="b"))
    await store.set_limit("default", "c", 2)
    await store.set_paused("default", "d", True)
    await claim(store, 1)
    assert await store.groups("default") == [
        GroupInfo(
            queue="default", name=None, limit=None, effective_limit=None, paused=False, waiting=1, delayed=0, running=0
        ),
        GroupInfo(
            queue="default", name="a", limit=None, effective_limit=7, paused=False, waiting=0, delayed=1, running=0
        ),
        GroupInfo(
            queue="default", name="b", limit=None, effective_limit=7, paused=False, waiting=1, delayed=0, running=1
        ),
        GroupInfo(queue="default", name="c", limit=2, effective_limit=2, paused=False, waiting=0, delayed=0, running=0),
        GroupInfo(
            queue="default", name="d", limit=None, effective_limit=7, paused=True, waiting=0, delayed=0, running=0
        ),
    ]
    assert await store.groups("no-such-queue") == []


async def test_groups_in_pages(store: Store) -> None:
    await insert(store, new(), *(new(group=name) for name in "abcd"))
    assert [info.name for info in await store.groups("default", limit=3)] == [None, "a", "b"]
    assert [info.name for info in await store.groups("default", limit=3, after="b")] == ["c", "d"]


async def test_a_group_with_nothing_left_is_not_listed(store: Store) -> None:
    await settle(store, await running(store, group="a"), Done())
    await store.set_limit("default", "b", 1)
    await store.set_limit("default", "b", None)
    await store.set_paused("default", "c", True)
    await store.set_paused("default", "c", False)
    assert await store.groups("default") == []


async def test_a_groups_own_limit_is_kept_without_jobs(store: Store) -> None:
    await store.set_limit("default", "a", 1)
    await settle(store, await running(store, group="a"), Done())
    assert (await group_info(store, "a")).limit == 1


async def test_an_empty_queue_is_removed(store: Store) -> None:
    await store.configure("mail", QueueSettings(max_running=1, max_per_group=1))
    await store.set_limit("mail", "a", 1)
    await store.set_paused("mail", "b", True)
    await store.set_paused("mail", None, True)
    await insert_one(store, queue="other")
    assert await store.remove_queue("mail") is True
    assert await store.remove_queue("mail") is False
    assert [info.name for info in await store.queues()] == ["other"]
    assert await store.groups("mail") == []
    await insert_one(store, queue="mail", group="a")
    assert (await queue_info(store, "mail")).settings == QueueSettings()
    assert (await group_info(store, "a", "mail")).limit is None
    assert len(await claim(store, 5, "mail", "other")) == 2, "nothing of the old queue is left"


async def test_a_queue_with_jobs_is_not_removed(store: Store) -> None:
    await store.configure("mail", QueueSettings(max_running=1))
    await insert(store, new(id="waiting", queue="mail"), new(id="delayed", queue="mail", delay_seconds=9))
    lease = await running(store, queue="mail", priority=1)
    jobs = ["waiting", "delayed", lease.job_id]
    while jobs:
        with pytest.raises(NotPossible):
            await store.remove_queue("mail")
        if jobs[-1] == lease.job_id:
            await settle(store, lease, Done())
            with pytest.raises(NotPossible):
                await store.remove_queue("mail")
        await store.change(Action.DELETE, [jobs.pop()])
    assert await store.remove_queue("mail")
    assert await store.queues() == []


async def test_a_queue_is_removed_with_the_keys_of_its_jobs(store: Store) -> None:
    unique = Unique("key", scope=UniqueScope.FOREVER)
    await insert(store, new(id="first", queue="mail", unique=unique))
    await store.change(Action.DELETE, ["first"])
    assert await store.remove_queue("mail")
    assert await insert(store, new(id="second", queue="mail", unique=unique)) == ["second"]


async def test_jobs_arrive_while_their_queue_is_removed(store: Store) -> None:
    async def insert_and_delete(number: int) -> None:
        await insert(store, new(id=f"job{number}", queue="mail"))
        await store.change(Action.DELETE, [f"job{number}"])

    async def remove() -> None:
        with contextlib.suppress(NotPossible):
            await store.remove_queue("mail")

    for _ in range(3):
        await asyncio.gather(*(insert_and_delete(number) for number in range(5)), remove(), remove())
    await insert(store, new(id="last", queue="mail"))
    assert await claim_ids(store, 5, "mail") == ["last"]
