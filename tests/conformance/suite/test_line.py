"""The line of groups: who is offered the next free slot."""

from __future__ import annotations

from tests.conformance.support import claim, configure, insert, insert_one, new

from jobyard.ports.store import Store
from jobyard.testing.clock import ManualClock


async def names(store: Store, queue: str = "default", limit: int = 100) -> list[str | None]:
    return [group.name for group in (await store.line(queue, limit)).groups]


async def test_the_line_is_the_order_of_the_next_claims(store: Store) -> None:
    await insert(store, *(new(group=name) for name in ("b", "a", "b", "c")), new())
    assert await names(store) == ["b", "a", "c", None]
    [lease] = await claim(store, 1)
    assert lease.group == "b"
    assert await names(store) == ["a", "c", None, "b"]
    assert [lease.group for lease in await claim(store, 4)] == ["a", "c", None, "b"]
    assert await names(store) == []


async def test_a_group_held_back_keeps_its_place(store: Store) -> None:
    await configure(store, max_per_group=1)
    await insert(store, *(new(group=name) for name in ("a", "a", "b", "c")))
    [lease] = await claim(store, 1)
    assert lease.group == "a"
    await store.set_paused("default", "b", True)
    await store.set_limit("default", "c", 0)
    line = await store.line("default")
    assert [(group.name, group.waiting, group.running, group.paused) for group in line.groups] == [
        ("b", 1, 0, True),
        ("c", 1, 0, False),
        ("a", 1, 1, False),
    ]
    assert [(group.limit, group.effective_limit) for group in line.groups] == [(None, 1), (0, 0), (None, 1)]
    assert await claim(store, 5) == ()
    await store.set_paused("default", "b", False)
    assert [lease.group for lease in await claim(store, 5)] == ["b"]


async def test_the_line_shows_its_front_and_its_length(store: Store, clock: ManualClock) -> None:
    await insert(store, *(new(group=str(number)) for number in range(7)))
    await insert_one(store, group="later", delay_seconds=60)
    line = await store.line("default", 3)
    assert [group.name for group in line.groups] == ["0", "1", "2"]
    assert line.total == 7
    clock.advance(61)
    assert (await names(store))[-1] == "later"


async def test_the_line_of_an_unknown_queue_is_empty(store: Store) -> None:
    line = await store.line("nowhere")
    assert (line.groups, line.total) == ((), 0)
