"""Histories in a sharded store: a workflow and its child jobs may be in different stores."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.conformance.support import new, settlement
from tests.stores.sharded_support import ShardedSetup

from jobyard.domain.history import Delivery, HistoryEntry, Wake, deliveries_of, signal_scope
from jobyard.domain.job import Parent, QueueSettings
from jobyard.domain.lease import Lease, LeaseKey
from jobyard.domain.outcome import Done, Park
from jobyard.errors import QueueFull, StoreUnavailable
from jobyard.ports.workflow_store import Checkpoint


@pytest.fixture
async def setup(tmp_path: Path) -> AsyncIterator[ShardedSetup]:
    async with ShardedSetup(tmp_path) as setup:
        yield setup


async def started(setup: ShardedSetup, queue: str, parent: Parent | None = None) -> Lease:
    await setup.store.insert([new(queue=queue, is_workflow=parent is None, parent=parent)])
    [lease] = (await setup.store.exchange("w", [], [queue], 1, 15)).leases
    return lease


async def settle(setup: ShardedSetup, lease: Lease, outcome: Done | Park) -> None:
    assert (await setup.store.exchange("w", [settlement(lease, outcome)], [], 0, 15)).refused == ()


@pytest.mark.parametrize(("own", "of_child"), [("default", "mail"), ("mail", "default")])
async def test_the_end_of_a_child_wakes_a_parent_in_another_store(setup: ShardedSetup, own: str, of_child: str) -> None:
    flow = await started(setup, own)
    await settle(setup, flow, Park("kids", None, (Wake("kids", 1),)))
    child = await started(setup, of_child, Parent(flow.job_id, "kids", "0"))
    await settle(setup, child, Done(b"7"))
    ends = await setup.store.ended_jobs()
    assert [(each.job_id, each.result) for each in ends] == [(child.job_id, b"7")]
    unknown = Delivery("no such job", "kids", "0", b"1")
    await setup.store.deliver([unknown, *(each for end in ends for each in deliveries_of(end))])
    await setup.store.forget_ended([each.job_id for each in ends])
    assert await setup.store.ended_jobs() == []
    [again] = (await setup.store.exchange("w", [], [own], 1, 15)).leases
    assert again.job_id == flow.job_id
    assert [entry.key for entry in await setup.store.history(flow.job_id, "kids")] == ["0"]
    assert len(await setup.main.history(flow.job_id, "kids")) == (own == "default")


async def test_checkpoints_go_to_the_store_of_their_lease(setup: ShardedSetup) -> None:
    here, there = await started(setup, "default"), await started(setup, "mail")
    keys = [there.key, LeaseKey(here.job_id, here.sequence, "ffffffff:token"), here.key]
    answers = await setup.store.checkpoint(
        [Checkpoint(key=key, entries=(HistoryEntry(key=str(n)),)) for n, key in enumerate(keys)]
    )
    assert [answer and answer[0].key for answer in answers] == ["0", None, "2"]
    assert [entry.key for entry in await setup.mail.history(there.job_id)] == ["0"]
    assert [entry.key for entry in await setup.main.history(here.job_id)] == ["2"]


async def test_signals_reach_a_workflow_in_any_store(setup: ShardedSetup) -> None:
    there = await started(setup, "mail")
    for _ in range(2):
        await setup.store.signal(there.job_id, "go", b"1", signal_id="x")
    assert [entry.key for entry in await setup.store.history(there.job_id, signal_scope("go"))] == ["x"]


async def test_a_store_with_many_ends_does_not_delay_the_others(setup: ShardedSetup) -> None:
    parent = Parent("the parent", "kids", "0")
    for queue in ["default"] * 5 + ["mail"]:
        await settle(setup, await started(setup, queue, parent), Done())
    assert len(await setup.store.ended_jobs()) == 6
    two = await setup.store.ended_jobs(limit=2)
    assert {each.job_id for each in two} > {each.job_id for each in await setup.mail.ended_jobs()}


async def test_an_unavailable_store_does_not_stop_deliveries_of_the_others(setup: ShardedSetup) -> None:
    here, there = await started(setup, "default"), await started(setup, "mail")
    await settle(setup, await started(setup, "default", Parent(there.job_id, "kids", "0")), Done())
    setup.mail.failing = StoreUnavailable("away")
    assert len(await setup.store.ended_jobs()) == 1
    with pytest.raises(StoreUnavailable):
        await setup.store.deliver([Delivery(each.job_id, "kids", "0", b"1") for each in (there, here)])
    assert len(await setup.main.history(here.job_id, "kids")) == 1
    await setup.store.deliver([Delivery(here.job_id, "kids", "1", b"1")])
    setup.main.failing = setup.mail.failing
    with pytest.raises(StoreUnavailable):
        await setup.store.ended_jobs()


async def test_a_rejected_insert_keeps_children_of_the_other_store(setup: ShardedSetup) -> None:
    """Deleted ones would be reported to their parent, although it inserts them again."""
    await setup.store.configure("mail", QueueSettings(max_waiting=1))
    parent = Parent("the parent", "kids", "0")
    jobs = [new(parent=parent), new(), new(queue="mail", parent=parent), new(queue="mail", parent=parent)]
    with pytest.raises(QueueFull) as caught:
        await setup.store.insert(jobs)
    assert jobs[0].id in caught.value.__notes__[0]
    assert jobs[1].id not in caught.value.__notes__[0]
    assert await setup.store.ended_jobs() == []
    await setup.store.configure("mail", QueueSettings())
    assert [each.created for each in await setup.store.insert(jobs)] == [False, True, True, True]
