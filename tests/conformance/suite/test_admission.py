"""Admission: order of groups and queues, limits, pauses."""

from __future__ import annotations

import os

import pytest
from tests.conformance.support import (
    LEASE_SECONDS,
    WORKER,
    claim,
    claim_ids,
    claim_one,
    complete,
    configure,
    insert,
    insert_one,
    new,
    promote_due_jobs,
    queue_info,
    settle,
    settlement,
)

from jobyard.domain.lease import Lease
from jobyard.domain.outcome import Done, Failed, Release, Snooze
from jobyard.ports.admin_store import Action
from jobyard.ports.store import Store
from jobyard.testing.clock import ManualClock

MANY = 20_000 if os.environ.get("JOBYARD_SOAK") else 1_500


async def fill(store: Store, groups: str, queue: str = "default") -> None:
    """Insert one job per letter in one call, in the group of that letter; "-" means no group."""
    await insert(store, *(new(queue=queue, group=None if name == "-" else name) for name in groups))


async def take(store: Store, wanted: int, *queues: str) -> str:
    return "".join(lease.group or "-" for lease in await claim(store, wanted, *queues))


async def test_priority_then_age(store: Store) -> None:
    ids = await insert(store, new(), new(priority=5), new(priority=-1), new(priority=5))
    assert await claim_ids(store, 10) == [ids[1], ids[3], ids[0], ids[2]]


async def test_at_most_the_wanted_number_is_claimed(store: Store) -> None:
    await fill(store, "----")
    assert len(await claim(store, 3)) == 3
    assert len(await claim(store, 0)) == 0
    assert len(await claim(store, 3)) == 1
    assert await claim(store, 3) == ()
    assert await claim(store, 3, "no-such-queue") == ()


async def test_groups_take_turns(store: Store) -> None:
    await fill(store, "aaabbc")
    assert await take(store, 10) == "abcaba"


async def test_jobs_without_a_group_are_one_group(store: Store) -> None:
    await fill(store, "--a-")
    assert await take(store, 10) == "-a--"


@pytest.mark.parametrize("step", [1, 2, 3, 7])
async def test_claiming_n_equals_claiming_one_n_times(store: Store, step: int) -> None:
    await configure(store, max_per_group=3, max_running=9)
    await fill(store, "aaaaabbbcddd--e-")
    taken = "".join([await take(store, step) for _ in range(16)])
    assert taken == "abcd-eabd"


async def test_the_position_in_line_is_kept_between_calls(store: Store) -> None:
    await fill(store, "aaabbbccc")
    assert await take(store, 2) == "ab"
    assert await take(store, 2) == "ca"
    assert await take(store, 5) == "bcabc"


async def test_a_group_without_due_jobs_joins_the_end(store: Store) -> None:
    await fill(store, "aabb")
    assert await take(store, 1) == "a"
    await fill(store, "c")
    assert await take(store, 3) == "bac"


async def test_additional_jobs_do_not_move_a_group(store: Store) -> None:
    await fill(store, "ab")
    await fill(store, "ba")
    assert await take(store, 4) == "abab"


async def test_a_group_that_lost_its_last_due_job_joins_the_end(store: Store) -> None:
    first, _ = await insert(store, new(group="a"), new(group="b"))
    await store.change(Action.CANCEL, [first])
    await fill(store, "a")
    assert await take(store, 2) == "ba"


async def test_changing_a_priority_keeps_the_position_of_the_group(store: Store) -> None:
    first, *_ = await insert(store, new(group="a"), new(group="b"))
    await store.change(Action.PRIORITISE, [first], priority=-9)
    assert await take(store, 2) == "ab"


async def test_max_running_limits_the_queue(store: Store) -> None:
    await configure(store, max_running=2)
    await fill(store, "abc")
    leases = await claim(store, 5)
    assert len(leases) == 2
    assert await claim(store, 5) == ()
    await complete(store, leases[:1])
    assert await take(store, 5) == "c"


async def test_max_per_group_limits_groups_but_not_ungrouped_jobs(store: Store) -> None:
    await configure(store, max_per_group=1)
    await fill(store, "aa--bb-")
    assert await take(store, 10) == "a-b--"


async def test_a_groups_own_limit_overrides_the_default(store: Store) -> None:
    await configure(store, max_per_group=1)
    await store.set_limit("default", "a", 2)
    await store.set_limit("default", "b", 0)
    await fill(store, "aaabbbccc")
    assert await take(store, 10) == "aca"
    await store.set_limit("default", "b", None)
    assert await take(store, 10) == "b"


async def test_a_lowered_limit_stops_no_running_job(store: Store) -> None:
    await fill(store, "aaa")
    leases = await claim(store, 2)
    await store.set_limit("default", "a", 1)
    assert await claim(store, 5) == ()
    await complete(store, leases[:1])
    assert await claim(store, 5) == ()
    await complete(store, leases[1:])
    assert await take(store, 5) == "a"


async def test_settings_take_effect_with_the_next_claim(store: Store) -> None:
    await fill(store, "aaaa")
    await configure(store, max_running=1)
    assert await take(store, 5) == "a"
    await configure(store, max_running=3)
    assert await take(store, 5) == "aa"


async def test_a_paused_queue_is_not_claimed_from(store: Store) -> None:
    await fill(store, "ab")
    await store.set_paused("default", None, True)
    assert await claim(store, 5) == ()
    await store.set_paused("default", None, False)
    assert await take(store, 5) == "ab"


async def test_a_paused_group_keeps_its_position(store: Store) -> None:
    await fill(store, "aabbcc")
    await store.set_paused("default", "a", True)
    assert await take(store, 3) == "bcb"
    await store.set_paused("default", "a", False)
    assert await take(store, 3) == "aca"


async def test_a_group_at_its_limit_keeps_its_position(store: Store) -> None:
    await store.set_limit("default", "a", 1)
    await fill(store, "aabbb")
    [first, *_] = await claim(store, 1)
    assert await take(store, 2) == "bb"
    await complete(store, [first])
    assert await take(store, 2) == "ab"


async def test_a_group_can_be_paused_and_limited_before_its_first_job(store: Store) -> None:
    await store.set_limit("new-queue", "a", 0)
    await store.set_paused("newer-queue", "a", True)
    await fill(store, "a", "new-queue")
    await fill(store, "a", "newer-queue")
    assert await claim(store, 5, "new-queue", "newer-queue") == ()


async def test_a_freed_group_slot_goes_to_that_group(store: Store) -> None:
    await configure(store, max_per_group=1)
    await fill(store, "aaabbb")
    leases = await claim(store, 5)
    assert [lease.group for lease in leases] == ["a", "b"]
    await complete(store, leases[:1])
    assert await take(store, 5) == "a"


async def test_slots_freed_by_settlements_are_used_by_the_claim(store: Store) -> None:
    await configure(store, max_per_group=1)
    await fill(store, "aa")
    lease = await claim_one(store)
    response = await store.exchange(WORKER, [settlement(lease, Done())], ["default"], 1, LEASE_SECONDS)
    assert [one.group for one in response.leases] == ["a"]


async def test_queues_take_turns(store: Store) -> None:
    await fill(store, "aaa", "one")
    await fill(store, "bb", "two")
    await fill(store, "c", "three")
    assert await take(store, 10, "three", "two", "one") == "abcaba"


async def test_only_named_queues_are_claimed_from(store: Store) -> None:
    await fill(store, "a", "one")
    await fill(store, "b", "two")
    assert await take(store, 10, "two") == "b"
    assert await take(store, 10, "one", "two") == "a"


async def test_no_queue_named_means_every_queue(store: Store) -> None:
    await fill(store, "a", "one")
    await fill(store, "b", "two")
    response = await store.exchange(WORKER, [], [], 10, LEASE_SECONDS)
    assert [lease.group for lease in response.leases] == ["a", "b"]


async def test_a_paused_group_takes_no_turn_from_other_queues_when_its_job_ends(store: Store) -> None:
    await fill(store, "aa", "one")
    lease = await claim_one(store, "one")
    await fill(store, "b", "two")
    await store.set_paused("one", "a", True)
    response = await store.exchange(WORKER, [settlement(lease, Done())], ["one", "two"], 1, LEASE_SECONDS)
    assert [lease.group for lease in response.leases] == ["b"]


async def test_a_queue_named_twice_has_one_turn(store: Store) -> None:
    await fill(store, "aa", "one")
    await fill(store, "bb", "two")
    assert await take(store, 4, "one", "two", "one") == "abab"


async def test_a_blocked_queue_keeps_its_position_among_queues(store: Store) -> None:
    await fill(store, "aa", "one")
    await fill(store, "bb", "two")
    await store.set_paused("one", None, True)
    assert await take(store, 1, "one", "two") == "b"
    await store.set_paused("one", None, False)
    assert await take(store, 3, "one", "two") == "aba"


async def test_a_queue_without_due_jobs_joins_the_end(store: Store) -> None:
    await fill(store, "a", "one")
    await fill(store, "bb", "two")
    assert await take(store, 1, "one", "two") == "a"
    await fill(store, "a", "one")
    assert await take(store, 3, "one", "two") == "bab"


async def test_the_turn_of_a_queue_is_shared_by_all_claims(store: Store) -> None:
    await fill(store, "aaa", "one")
    await fill(store, "bbb", "two")
    assert await take(store, 1, "one") == "a"
    assert await take(store, 2, "one", "two") == "ba"


async def test_delayed_jobs_do_not_block_others(store: Store) -> None:
    await insert(store, new(group="a", priority=9, delay_seconds=60), new(group="a"), new(group="b", delay_seconds=60))
    assert await take(store, 5) == "a"


async def test_due_jobs_join_by_time_then_sequence(store: Store, clock: ManualClock) -> None:
    await insert(
        store,
        new(group="c", delay_seconds=3),
        new(group="b", delay_seconds=2),
        new(group="a", delay_seconds=1),
        new(group="d", delay_seconds=2),
    )
    clock.advance(5)
    assert await take(store, 5) == "abdc"


async def test_due_jobs_join_before_new_ones(store: Store, clock: ManualClock) -> None:
    await insert_one(store, group="a", delay_seconds=1)
    clock.advance(1)
    await fill(store, "b")
    assert await take(store, 5) == "ab"


async def test_due_jobs_join_before_released_ones(store: Store, clock: ManualClock) -> None:
    await fill(store, "a")
    lease = await claim_one(store)
    await insert_one(store, group="b", delay_seconds=1)
    clock.advance(1)
    await settle(store, lease, Release())
    assert await take(store, 5) == "ba"


async def test_a_requeued_job_keeps_its_position_in_the_group(store: Store, clock: ManualClock) -> None:
    first, second = await insert(store, new(), new())
    lease = await claim_one(store)
    await settle(store, lease, Failed(message="again"))
    clock.advance(10)
    assert await claim_ids(store, 2) == [first, second]


async def test_settlements_are_applied_in_the_given_order(store: Store) -> None:
    await fill(store, "abc")
    leases = await claim(store, 3)
    back = [settlement(leases[index], Release()) for index in (2, 0, 1)]
    response = await store.exchange(WORKER, back, ["default"], 3, LEASE_SECONDS)
    assert [lease.group for lease in response.leases] == ["c", "a", "b"]


async def test_a_delay_that_rounds_to_zero_is_due_at_once(store: Store) -> None:
    await fill(store, "a")
    lease = await claim_one(store)
    response = await store.exchange(WORKER, [settlement(lease, Snooze(0.0004))], ["default"], 1, LEASE_SECONDS)
    assert [one.job_id for one in response.leases] == [lease.job_id]


async def test_an_exchange_returns_when_the_next_job_is_due(store: Store, clock: ManualClock) -> None:
    assert (await promote_due_jobs(store)).next_due_at is None
    await insert(store, new(delay_seconds=9), new(queue="other", delay_seconds=4))
    response = await promote_due_jobs(store)
    assert response.next_due_at == clock.now() + 4000
    assert response.now == clock.now() == await store.now()
    clock.advance(4)
    assert (await promote_due_jobs(store)).next_due_at == clock.now() + 5000


async def test_revisions_ascend_with_changes_of_the_line(store: Store) -> None:
    revisions = []
    for _ in range(3):
        await insert_one(store)
        response = await store.exchange(WORKER, [], ["default"], 1, LEASE_SECONDS)
        revisions.append(response.revision)
    assert revisions == sorted(set(revisions))
    assert (await promote_due_jobs(store)).revision >= revisions[-1]


async def test_a_claim_of_all_queues_finds_a_job_that_just_became_due(store: Store, clock: ManualClock) -> None:
    first = await insert_one(store, queue="one", delay_seconds=5)
    second = await insert_one(store, queue="two")
    clock.advance(5)
    exchange = await store.exchange(WORKER, [], (), 10, LEASE_SECONDS)
    assert {lease.job_id for lease in exchange.leases} == {first, second}


async def test_many_jobs_that_become_due_at_once_all_get_their_turn(store: Store, clock: ManualClock) -> None:
    """More than a call makes due: the rest follows in order."""
    jobs = [new(group="abc"[number % 3], delay_seconds=5) for number in range(MANY)]
    await store.insert(jobs)
    clock.advance(5)
    info = await queue_info(store)
    assert info.waiting + info.delayed == MANY
    claimed: list[Lease] = []
    while leases := await claim(store, 1000):
        claimed += leases
    for group in "abc":
        expected = [job.id for job in jobs if job.group == group]
        assert [lease.job_id for lease in claimed if lease.group == group] == expected
