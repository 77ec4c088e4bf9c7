"""History: checkpoints under the lease, deliveries from outside, and waking by them."""

from __future__ import annotations

import asyncio

import pytest
from tests.conformance.support import (
    LEASE_SECONDS,
    claim,
    claim_one,
    configure,
    get_job,
    insert_one,
    queue_info,
    running,
    settle,
    stale,
)

from jobyard.domain.history import MAX_TAKEN_SIGNALS, Delivery, HistoryEntry, Wake, signal_scope
from jobyard.domain.instant import FOREVER
from jobyard.domain.job import Ending, Parent, State
from jobyard.domain.lease import MAX_DEATHS, Lease
from jobyard.domain.outcome import Cancel, Done, Failed, Outcome, Park, Release, Snooze
from jobyard.ports.admin_store import Action
from jobyard.ports.store import Store
from jobyard.ports.workflow_store import Checkpoint, Restart
from jobyard.testing.clock import ManualClock


async def started(store: Store, **options: object) -> Lease:
    return await running(store, is_workflow=True, **options)


async def record(store: Store, lease: Lease, *keys: str, data: bytes = b"1") -> list[HistoryEntry]:
    entries = tuple(HistoryEntry(key=key, data=data) for key in keys)
    [recorded] = await store.checkpoint([Checkpoint(key=lease.key, entries=entries)])
    assert recorded is not None
    return list(recorded)


async def keys(store: Store, job_id: str, scope: str = "") -> list[str]:
    return [entry.key for entry in await store.history(job_id, scope)]


# Checkpoints


async def test_entries_are_kept_in_order_and_stamped(store: Store, clock: ManualClock) -> None:
    lease = await started(store)
    clock.advance(5)
    [first, second] = await record(store, lease, "a", "b")
    assert (first.key, first.data, first.at) == ("a", b"1", clock.now())
    assert first.number < second.number
    assert await store.history(lease.job_id) == [first, second]


async def test_the_first_entry_of_a_key_is_kept(store: Store) -> None:
    lease = await started(store)
    [first] = await record(store, lease, "a", data=b"1")
    again = await record(store, lease, "a", "b", data=b"2")
    assert again[0] == first
    assert [entry.data for entry in await store.history(lease.job_id)] == [b"1", b"2"]


async def test_a_key_may_be_named_twice_in_one_checkpoint(store: Store) -> None:
    lease = await started(store)
    [first, second] = await record(store, lease, "a", "a")
    assert first == second
    assert await keys(store, lease.job_id) == ["a"]


async def test_concurrent_calls_write_each_key_once(store: Store) -> None:
    """As after an outage: a call that was given up may still be running when it is repeated."""
    lease = await started(store)

    async def deliver(number: int) -> None:
        await store.deliver([Delivery(lease.job_id, "kids", f"{number % 4}", b"1")])

    records = [record(store, lease, f"{number % 3}", "shared", data=b"%d" % number) for number in range(9)]
    told, _ = await asyncio.gather(asyncio.gather(*records), asyncio.gather(*map(deliver, range(8))))
    stored = {entry.key: entry for entry in await store.history(lease.job_id)}
    assert sorted(stored) == ["0", "1", "2", "shared"]
    assert all(entry == stored[entry.key] for entries in told for entry in entries)
    assert sorted(await keys(store, lease.job_id, "kids")) == ["0", "1", "2", "3"]


async def test_a_checkpoint_without_the_lease_changes_nothing(store: Store) -> None:
    lease, other = await started(store), await started(store)
    entry = HistoryEntry(key="a")
    good, bad = Checkpoint(key=other.key, entries=(entry,)), Checkpoint(key=stale(lease.key), entries=(entry,))
    results = await store.checkpoint([bad, good])
    assert results[0] is None
    assert results[1] is not None
    assert await keys(store, lease.job_id) == []
    assert await keys(store, other.job_id) == ["a"]


async def test_a_checkpoint_of_an_expired_attempt_is_refused(store: Store, clock: ManualClock) -> None:
    lease = await started(store)
    clock.advance(LEASE_SECONDS + 1)
    await store.reclaim()
    assert await store.checkpoint([Checkpoint(key=lease.key, entries=(HistoryEntry(key="a"),))]) == [None]
    again = await claim_one(store)
    assert await store.checkpoint([Checkpoint(key=lease.key, entries=(HistoryEntry(key="a"),))]) == [None]
    await record(store, again, "b")
    assert await keys(store, lease.job_id) == ["b"]


async def test_history_is_read_in_pages(store: Store) -> None:
    lease = await started(store)
    await record(store, lease, *(f"{n:03}" for n in range(50)))
    page = await store.history(lease.job_id, limit=20)
    rest = await store.history(lease.job_id, after=page[-1].number)
    assert [entry.key for entry in page + rest] == [f"{n:03}" for n in range(50)]
    assert await store.history("no such job") == []


async def test_histories_of_several_jobs_are_read_together(store: Store) -> None:
    leases = [await started(store) for _ in range(3)]
    for lease in leases[:2]:
        await record(store, lease, *(f"{lease.job_id} {n:04}" for n in range(700)))
    await store.deliver([Delivery(leases[0].job_id, "kids", key, b"7") for key in ("b", "a")])
    ids = [lease.job_id for lease in leases]
    wanted = [(ids[0], ""), (ids[0], "kids"), (ids[2], ""), ("no such job", ""), (ids[1], ""), (ids[0], "")]
    for limit in (1000, 600, 2):
        expected = [await store.history(job_id, scope, limit=limit) for job_id, scope in wanted]
        assert await store.histories(wanted, limit) == expected
    assert [len(page) for page in expected] == [2, 2, 0, 0, 2, 2]
    assert await store.histories([]) == []


async def test_history_stays_through_retries_and_ends_with_the_job(store: Store, clock: ManualClock) -> None:
    lease = await started(store, max_attempts=2)
    await record(store, lease, "a")
    await settle(store, lease, Failed(message="no"))
    clock.advance(10)
    lease = await claim_one(store)
    assert await keys(store, lease.job_id) == ["a"]
    await settle(store, lease, Done())
    assert await keys(store, lease.job_id) == ["a"]
    assert (await store.change(Action.DELETE, [lease.job_id])).changed == (lease.job_id,)
    assert await keys(store, lease.job_id) == []


async def test_progress_resets_the_count_of_deaths(store: Store, clock: ManualClock) -> None:
    lease = await started(store)
    for number in range(5):
        await record(store, lease, f"step {number}")
        clock.advance(LEASE_SECONDS + 1)
        assert len(await store.reclaim()) == 1
        lease = await claim_one(store)
        assert lease.deaths == 1
    job = await get_job(store, lease.job_id)
    assert (job.state, job.deaths) == (State.RUNNING, 1)


async def test_a_workflow_that_has_begun_gets_one_attempt_more_to_end_itself(store: Store, clock: ManualClock) -> None:
    lease = await started(store)
    await record(store, lease, "a")
    for deaths in range(MAX_DEATHS + 1):
        assert (lease.deaths, lease.attempt) == (deaths, 1)
        clock.advance(LEASE_SECONDS + 1)
        [ended] = await store.reclaim()
        if deaths < MAX_DEATHS:
            assert ended.error.ending is Ending.LOST
            lease = await claim_one(store)
    job = await get_job(store, lease.job_id)
    assert (job.state, job.deaths, ended.error.ending) == (State.FAILED, MAX_DEATHS + 1, Ending.QUARANTINED)
    assert job.reason == f"quarantined: {MAX_DEATHS + 1} workers died while running it"
    assert await store.audit() == []


async def test_a_restart_replaces_payload_and_history_but_keeps_signals(store: Store) -> None:
    lease = await started(store, payload=b'{"n":1}')
    await record(store, lease, "a", "b")
    for signal_id in ("one", "two"):
        await store.signal(lease.job_id, "go", signal_id=signal_id)
    await store.deliver([Delivery(lease.job_id, "1:child", "0", b"1")])
    restart = Restart(b'{"n":2}', taken=((signal_scope("go"), "one"),))
    [recorded] = await store.checkpoint(
        [Checkpoint(key=lease.key, restart=restart, entries=(HistoryEntry(key="a", data=b"7"),))]
    )
    assert recorded is not None
    assert [entry.data for entry in recorded] == [b"7"]
    assert await keys(store, lease.job_id) == ["a"]
    assert await keys(store, lease.job_id, "1:child") == []
    assert await keys(store, lease.job_id, signal_scope("go")) == ["two"]
    await settle(store, lease, Release())
    assert (await claim_one(store)).payload == b'{"n":2}'
    assert bytes((await get_job(store, lease.job_id)).payload) == b'{"n":2}'


async def test_a_checkpoint_makes_any_job_a_workflow(store: Store) -> None:
    lease = await running(store)
    await record(store, lease, "a")
    assert (await get_job(store, lease.job_id)).is_workflow
    await store.change(Action.CANCEL, [lease.job_id], reason="enough")
    await settle(store, lease, Release())
    lease = await claim_one(store)
    assert (lease.is_workflow, lease.cancel_requested) == (True, "enough")
    await settle(store, lease, Failed(message="no", retry=False))
    assert [each.job_id for each in await store.ended_jobs()] == [lease.job_id]


# Deliveries and waking


async def park(store: Store, lease: Lease, *wake: Wake, seconds: float | None = None) -> None:
    await settle(store, lease, Park("children", seconds, wake))


async def test_a_workflow_parks_until_enough_is_delivered(store: Store, clock: ManualClock) -> None:
    lease = await started(store)
    await park(store, lease, Wake("kids", 2))
    job = await get_job(store, lease.job_id)
    assert (job.state, job.waiting_for, job.run_at, job.attempt) == (State.PENDING, "children", FOREVER, 0)
    await store.deliver([Delivery(lease.job_id, "kids", "a", b"1"), Delivery(lease.job_id, "kids", "a", b"2")])
    await store.deliver([Delivery(lease.job_id, "other", "b", b"1")])
    assert await claim(store) == ()
    clock.advance(3)
    await store.deliver([Delivery(lease.job_id, "kids", "b", b"3")])
    job = await get_job(store, lease.job_id)
    assert (job.waiting_for, job.run_at) == (None, clock.now())
    assert (await claim_one(store)).job_id == lease.job_id
    assert [entry.data for entry in await store.history(lease.job_id, "kids")] == [b"1", b"3"]
    assert (await queue_info(store)).running == 1


async def test_a_condition_that_holds_already_makes_it_due_at_once(store: Store) -> None:
    lease = await started(store)
    await store.deliver([Delivery(lease.job_id, "kids", "a", b"1")])
    await park(store, lease, Wake("none", 1), Wake("kids", 1))
    assert (await claim_one(store)).job_id == lease.job_id


async def test_a_parked_workflow_is_due_at_its_deadline(store: Store, clock: ManualClock) -> None:
    lease = await started(store)
    await park(store, lease, Wake("kids", 1), seconds=60)
    clock.advance(59)
    assert await claim(store) == ()
    clock.advance(1)
    lease = await claim_one(store)
    assert (lease.attempt, lease.signal) == (1, None)
    # Its condition is over: a delivery changes nothing but the history.
    await settle(store, lease, Snooze(30))
    await store.deliver([Delivery(lease.job_id, "kids", "a", b"1")])
    assert await claim(store) == ()
    assert await keys(store, lease.job_id, "kids") == ["a"]


async def test_it_wakes_in_its_old_position(store: Store) -> None:
    lease = await started(store)
    await park(store, lease, Wake("kids", 1))
    await insert_one(store)
    await insert_one(store)
    await store.deliver([Delivery(lease.job_id, "kids", "a", b"1")])
    assert (await claim_one(store)).job_id == lease.job_id


async def test_deliveries_to_ended_and_unknown_jobs_are_ignored(store: Store) -> None:
    lease = await started(store)
    await settle(store, lease, Done())
    await store.deliver([Delivery(lease.job_id, "kids", "a", b"1"), Delivery("no such job", "kids", "a", b"1")])
    assert await keys(store, lease.job_id, "kids") == []


@pytest.mark.parametrize("outcome", [Failed(message="no", retry=False), Cancel("no")])
async def test_what_is_delivered_to_a_failed_job_is_there_when_it_is_retried(
    store: Store, outcome: Failed | Cancel
) -> None:
    lease = await started(store)
    await settle(store, lease, outcome)
    await store.deliver([Delivery(lease.job_id, "kids", "a", b"1")])
    assert await claim(store) == ()
    assert (await get_job(store, lease.job_id)).state.is_final
    await store.change(Action.RETRY, [lease.job_id])
    again = await claim_one(store)
    assert await keys(store, again.job_id, "kids") == ["a"]
    await park(store, again, Wake("kids", 1))
    assert (await claim_one(store)).job_id == lease.job_id


async def test_many_deliveries_in_one_call(store: Store) -> None:
    leases = [await started(store) for _ in range(5)]
    for lease in leases:
        await park(store, lease, Wake("kids", 300))
    await store.deliver([Delivery(lease.job_id, "kids", str(n), b"1") for n in range(300) for lease in leases])
    assert {lease.job_id for lease in await claim(store, 9)} == {lease.job_id for lease in leases}
    assert len(await store.history(leases[0].job_id, "kids")) == 300


# Signals


async def test_signals_of_a_workflow_are_entries(store: Store) -> None:
    lease = await started(store)
    scope = signal_scope("go")
    assert await store.signal(lease.job_id, "go", b"1", signal_id="x") is False
    assert await store.signal(lease.job_id, "go", b"2", signal_id="x") is False
    assert await store.signal(lease.job_id, "go", b"3") is False
    assert [entry.data for entry in await store.history(lease.job_id, scope)] == [b"1", b"3"]
    await park(store, lease, Wake(scope, 3))
    assert await store.signal(lease.job_id, "stay") is False
    assert await store.signal(lease.job_id, "go", b"4") is True
    lease = await claim_one(store)
    assert lease.signal is None
    assert [entry.data for entry in await store.history(lease.job_id, scope)] == [b"1", b"3", b"4"]


async def test_a_repeated_signal_is_ignored_by_a_job_that_has_taken_it(store: Store) -> None:
    lease = await running(store)
    await settle(store, lease, Park("go"))
    assert await store.signal(lease.job_id, "go", b"1", signal_id="x") is True
    lease = await claim_one(store)
    await settle(store, lease, Park("go"))
    assert await store.signal(lease.job_id, "go", b"1", signal_id="x") is False
    assert await claim(store) == ()
    assert await store.signal(lease.job_id, "go", b"2", signal_id="y") is True
    assert (await claim_one(store)).signal == b"2"


async def test_signals_that_a_job_has_taken_are_bounded(store: Store) -> None:
    lease, scope, count = await running(store), signal_scope("go"), 2 * MAX_TAKEN_SIGNALS
    for number in range(count):
        await settle(store, lease, Park("go"))
        await store.signal(lease.job_id, "go", b"%d" % number, signal_id=f"s{number}")
        lease = await claim_one(store)
        assert lease.signal == b"%d" % number
    kept = await store.history(lease.job_id, scope)
    assert [(entry.key, entry.data) for entry in kept] == [
        (f"s{number}", b"null") for number in range(count - MAX_TAKEN_SIGNALS, count)
    ]
    assert await store.audit() == []
    # The last ones are recognised, and new ones are received.
    await store.signal(lease.job_id, "go", signal_id=f"s{count - MAX_TAKEN_SIGNALS}")
    await store.signal(lease.job_id, "go", b'"new"')
    await settle(store, lease, Park("go"))
    lease = await claim_one(store)
    assert lease.signal == b'"new"'
    await settle(store, lease, Park("go"))
    assert await claim(store) == ()


# Cancelling


async def test_a_workflow_that_has_not_begun_is_cancelled_at_once(store: Store) -> None:
    job_id = await insert_one(store, is_workflow=True)
    await store.change(Action.CANCEL, [job_id])
    assert (await get_job(store, job_id)).state is State.CANCELLED
    lease = await started(store)
    await store.change(Action.CANCEL, [lease.job_id], reason="enough")
    await settle(store, lease, Release())
    assert (await get_job(store, lease.job_id)).state is State.CANCELLED


@pytest.mark.parametrize("where", ["parked", "sleeping", "in line"])
async def test_a_begun_workflow_is_woken_to_end_itself(store: Store, where: str) -> None:
    lease = await started(store)
    await record(store, lease, "a")
    outcomes: dict[str, Outcome] = {"parked": Park("kids", None, (Wake("kids", 1),)), "sleeping": Snooze(3600)}
    outcome = outcomes.get(where, Release())
    await settle(store, lease, outcome)
    assert (await store.change(Action.CANCEL, [lease.job_id], reason="enough")).changed == (lease.job_id,)
    job = await get_job(store, lease.job_id)
    assert (job.state, job.cancel_requested, job.waiting_for) == (State.PENDING, "enough", None)
    lease = await claim_one(store)
    assert lease.cancel_requested == "enough"
    # The request is not repeated to the worker, and the workflow may wait while it ends.
    response = await settle(store, lease, Park("kids", None, (Wake("kids", 1),)))
    assert response.cancelled == ()
    assert (await get_job(store, lease.job_id)).state is State.PENDING
    await store.deliver([Delivery(lease.job_id, "kids", "a", b"1")])
    lease = await claim_one(store)
    assert lease.cancel_requested == "enough"
    assert (await store.extend("worker-1", [lease.key], 15)).cancelled == ()


async def test_a_running_workflow_carries_the_request_to_its_next_attempt(store: Store) -> None:
    lease = await started(store)
    await record(store, lease, "a")
    await store.change(Action.CANCEL, [lease.job_id], reason="enough")
    assert (await store.extend("worker-1", [lease.key], 15)).cancelled == ((lease.key, "enough"),)
    await settle(store, lease, Park("kids", None, (Wake("kids", 1),)))
    again = await claim_one(store)
    assert (again.job_id, again.cancel_requested) == (lease.job_id, "enough")


async def test_the_request_survives_the_death_of_the_worker(store: Store, clock: ManualClock) -> None:
    lease = await started(store)
    await record(store, lease, "a")
    await store.change(Action.CANCEL, [lease.job_id], reason="enough")
    for _ in range(2):
        clock.advance(LEASE_SECONDS + 1)
        await store.reclaim()
        lease = await claim_one(store)
        assert lease.cancel_requested == "enough"


@pytest.mark.parametrize("is_running", [False, True])
async def test_a_second_cancel_ends_it_at_once(store: Store, is_running: bool) -> None:
    lease = await started(store)
    await record(store, lease, "a")
    await settle(store, lease, Park("kids", None, (Wake("kids", 1),)))
    await store.change(Action.CANCEL, [lease.job_id], reason="enough")
    if is_running:
        lease = await claim_one(store)
    await store.change(Action.CANCEL, [lease.job_id], reason="now")
    if is_running:
        await settle(store, lease, Release())
    job = await get_job(store, lease.job_id)
    assert (job.state, job.reason, job.cancel_requested) == (State.CANCELLED, "now", None)


async def test_a_retry_after_the_cancel_begins_without_a_request(store: Store) -> None:
    lease = await started(store)
    await record(store, lease, "a")
    await settle(store, lease, Release())
    for _ in range(2):
        await store.change(Action.CANCEL, [lease.job_id])
    await store.change(Action.RETRY, [lease.job_id])
    lease = await claim_one(store)
    assert lease.cancel_requested is None
    assert await keys(store, lease.job_id) == ["a"]


async def test_a_begun_workflow_is_not_deleted(store: Store) -> None:
    lease = await started(store)
    await record(store, lease, "a")
    await settle(store, lease, Snooze(60))
    assert (await store.change(Action.DELETE, [lease.job_id])).unchanged == (lease.job_id,)
    waiting = await insert_one(store, is_workflow=True)
    assert (await store.change(Action.DELETE, [waiting])).changed == (waiting,)


@pytest.mark.parametrize("where", ["parked", "in line", "running", "running again"])
async def test_a_request_is_not_repeated_unless_that_is_meant(store: Store, where: str) -> None:
    lease = await started(store)
    await record(store, lease, "a")
    if where in ("parked", "in line"):
        await settle(store, lease, Park("kids", None, (Wake("kids", 1),)) if where == "parked" else Release())
    first = await store.change(Action.CANCEL, [lease.job_id], reason="enough", unless_requested=True)
    assert first.changed == (lease.job_id,)
    if where == "running again":
        await settle(store, lease, Release())
        lease = await claim_one(store)
    for _ in range(2):
        again = await store.change(Action.CANCEL, [lease.job_id], reason="again", unless_requested=True)
        assert (again.changed, again.unchanged) == ((), (lease.job_id,))
    job = await get_job(store, lease.job_id)
    assert (job.state.is_final, job.cancel_requested) == (False, "enough")


async def test_jobs_without_a_request_are_cancelled_all_the_same(store: Store) -> None:
    ended = await running(store)
    await settle(store, ended, Done())
    lease, waiting = await running(store), await insert_one(store)
    asked = [waiting, lease.job_id, ended.job_id]
    changed = await store.change(Action.CANCEL, asked, reason="enough", unless_requested=True)
    assert (changed.changed, changed.unchanged) == ((waiting, lease.job_id), (ended.job_id,))
    changed = await store.change(Action.CANCEL, asked, reason="again", unless_requested=True)
    assert changed.unchanged == tuple(asked)
    assert (await get_job(store, lease.job_id)).cancel_requested == "enough"


async def end_badly(store: Store, outcome: Outcome, **options: object) -> str:
    lease = await started(store, **options)
    await record(store, lease, "a")
    await settle(store, lease, outcome)
    return lease.job_id


@pytest.mark.parametrize("outcome", [Failed(message="no", retry=False), Cancel("no")])
async def test_a_workflow_is_not_deleted_before_its_end_is_delivered(store: Store, outcome: Outcome) -> None:
    job_id = await end_badly(store, outcome)
    assert (await store.change(Action.DELETE, [job_id])).unchanged == (job_id,)
    assert await keys(store, job_id) == ["a"]
    await store.forget_ended([job_id])
    assert (await store.change(Action.DELETE, [job_id])).changed == (job_id,)
    assert await store.get(job_id) is None


async def test_a_workflow_is_not_pruned_before_its_end_is_delivered(store: Store) -> None:
    await configure(store, keep_failed=0, keep_failed_seconds=0)
    job_id = await end_badly(store, Failed(message="no", retry=False))
    await store.prune()
    assert await keys(store, job_id) == ["a"]
    assert await store.audit() == []
    await store.forget_ended([job_id])
    await store.prune()
    assert await store.get(job_id) is None
    assert await store.audit() == []


async def test_a_completed_workflow_is_deleted_at_once(store: Store) -> None:
    job_id = await end_badly(store, Done(), parent=Parent("the parent", "1:scan", "7"))
    assert (await store.change(Action.DELETE, [job_id])).changed == (job_id,)
    assert [each.state for each in await store.ended_jobs()] == [State.COMPLETED]
