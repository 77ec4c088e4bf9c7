"""Opening and closing a yard, also from synchronous programs."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from pathlib import Path

import pytest
from tests.support import Make, eventually

from jobyard import BlockingContext, Jobyard
from jobyard.errors import JobNotFound, StoreReadOnly


def test_the_blocking_twin(make: Make) -> None:
    yard = make()

    @yard.job()
    def work(ctx: BlockingContext, n: int) -> int:
        return n + 1

    with yard.blocking() as wait:
        worker = yard.worker()
        wait(worker.start())
        assert wait(wait(work.enqueue(1)).result(60)) == 2
        handles = wait(yard.enqueue_many(work.call(2), work.call(3)))
        assert [wait(handle.result(60)) for handle in handles] == [3, 4]
        with pytest.raises(JobNotFound):
            wait(yard.get("nothing"))
        wait(worker.stop())
    with yard.blocking() as wait:
        assert isinstance(wait(yard.queues()), list)


def test_the_blocking_twin_cleans_up_when_it_cannot_open(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with pytest.raises(Exception, match="does not exist"), Jobyard(f"sqlite:///{tmp_path}/no/jobs.db").blocking():
        pass
    made = set(threading.enumerate()) - before
    for thread in made:
        thread.join(60)  # some linger for a moment
    assert not [thread.name for thread in made if thread.is_alive()]


async def test_opening_twice_is_opening_once(make: Make) -> None:
    yard = make()
    async with yard, yard:
        pass
    async with yard:
        assert isinstance(await yard.queues(), list)


async def test_declared_queues_are_written(make: Make) -> None:
    yard = make()
    yard.queue("q", max_running=3, max_per_group=2, keep_completed=7)
    async with yard:
        [queue] = await yard.queues()
    assert (queue.settings.max_running, queue.settings.max_per_group, queue.settings.keep_completed) == (3, 2, 7)
    yard = make()
    yard.queue("q", keep_completed_for=timedelta(hours=2), keep_failed_for=0, keep_at_most=7)
    async with yard:
        [kept] = [info.settings for info in await yard.queues() if info.name == "q"]
    assert (kept.keep_completed_seconds, kept.keep_failed_seconds, kept.keep_at_most) == (7200, 0, 7)


async def test_opening_from_many_tasks_at_once(tmp_path: Path) -> None:
    yard = Jobyard(f"sqlite:///{tmp_path}/jobs.db")
    await asyncio.gather(*[yard.open() for _ in range(5)])
    writers = [thread.name for thread in threading.enumerate() if thread.name == "jobyard-sqlite-writer"]
    assert len(writers) == 1
    for _ in range(4):
        await yard.close()
    assert await yard.queues() == []  # still open: one is left
    await yard.close()
    await eventually(lambda: not [t for t in threading.enumerate() if t.name.startswith("jobyard-sqlite")])


async def test_an_opening_that_fails_can_be_tried_again(tmp_path: Path) -> None:
    yard = Jobyard(f"sqlite:///{tmp_path}/folder/jobs.db")
    results = await asyncio.gather(*[yard.open() for _ in range(3)], return_exceptions=True)
    assert [type(answer) for answer in results] == [StoreReadOnly] * 3
    (tmp_path / "folder").mkdir()
    async with yard:
        assert await yard.queues() == []
