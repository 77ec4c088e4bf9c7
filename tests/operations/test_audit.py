"""The audit log: order, size of entries, retention."""

from __future__ import annotations

from tests.support import Watched

from jobyard.domain.access import OWNER, AuditEntry, Principal, Role
from jobyard.errors import StoreUnavailable
from jobyard.operations.audit_log import MAX_DETAILS_BYTES, START, TRIM_EVERY, Audit, position_after
from jobyard.stores.memory import MemoryStore
from jobyard.testing.clock import ManualClock


async def test_entries_are_read_in_the_order_they_were_written() -> None:
    clock = ManualClock()
    audit = Audit(MemoryStore(clock))
    ann = Principal(id="a1", name="ann", role=Role.OPERATOR)
    first = await audit.record(ann, "queue.pause", "builds", {"group": "acme"})
    clock.advance(2)
    second = await audit.record(OWNER, "token.create", "t1")
    entries = await audit.read()
    assert [entry.number for entry in entries] == [first, second]
    assert (entries[0].principal, entries[0].name, entries[0].role) == ("a1", "ann", Role.OPERATOR)
    assert (entries[0].action, entries[0].target, entries[0].details) == ("queue.pause", "builds", {"group": "acme"})
    assert entries[1].at - entries[0].at == 2000
    assert await audit.read(after=position_after(START, entries[:1])) == entries[1:]
    assert await audit.read(limit=1) == entries[:1]


async def test_no_role_can_push_out_the_entries_of_higher_ones() -> None:
    clock = ManualClock()
    audit = Audit(MemoryStore(clock), keep=2)
    ann = Principal(id="a1", name="ann", role=Role.ADMIN)
    ben = Principal(id="b1", name="ben", role=Role.SUBMITTER)
    await audit.record(ann, "token.create", "t1")
    await audit.record(ann, "session.open")
    for _ in range(TRIM_EVERY + 10):
        clock.advance(1)
        await audit.record(ben, "session.open")
        await audit.record(ben, "job.cancel", "j1")
    clock.advance(1)
    await audit.record(ann, "token.revoke", "t1")
    found = await audit.read(limit=1000)
    assert [entry.action for entry in found if entry.principal == ann.id] == [
        "token.create", "session.open", "token.revoke",
    ]  # fmt: skip
    assert len(found) <= 3 + 2 * (2 + TRIM_EVERY)
    assert [entry.at for entry in found] == sorted(entry.at for entry in found)
    paged, after = [], START
    while page := await audit.read(after, 7):
        paged += page
        after = position_after(after, page)
    assert paged == found


async def test_backwards_is_the_mirror_of_forwards_also_within_one_instant() -> None:
    clock = ManualClock()
    audit = Audit(MemoryStore(clock))
    ann = Principal(id="a1", name="ann", role=Role.ADMIN)
    for number in range(20):
        await audit.record(ann, "session.open" if number % 3 == 0 else "queue.pause", str(number))
        if number % 7 == 0:
            clock.advance(1)
    found: list[AuditEntry] = []
    page, before = await audit.newest(3)
    while page:
        found += page
        page, before = await audit.newest(3, position_after(before, page))
    assert found == (await audit.read(limit=100))[::-1]


async def test_an_entry_is_small() -> None:
    audit = Audit(MemoryStore(ManualClock()))
    await audit.record(OWNER, "jobs.cancel", "", {"ids": ["x" * 36] * 1000})
    [entry] = await audit.read()
    assert entry.details == {"left_out": f"more than {MAX_DETAILS_BYTES} bytes"}


async def test_the_newest_entries_are_kept() -> None:
    store = Watched(MemoryStore(ManualClock()))
    audit = Audit(store.as_store(), keep=5)
    written = [await audit.record(OWNER, "queue.pause", str(number)) for number in range(TRIM_EVERY + 20)]
    entries = await audit.read(limit=1000)
    assert [entry.number for entry in entries] == written[-len(entries) :]
    assert 5 <= len(entries) <= 5 + TRIM_EVERY
    assert store.calls["trim"] == 2, "not with each entry"


async def test_an_entry_is_written_even_if_trimming_fails() -> None:
    store = Watched(MemoryStore(ManualClock()))
    audit = Audit(store.as_store(), keep=1)
    store.failing, store.failing_verbs = StoreUnavailable("it is away"), ("trim",)
    for number in range(3):
        await audit.record(OWNER, "queue.pause", str(number))
    assert [entry.target for entry in await audit.read()] == ["0", "1", "2"]
    store.failing = None
    await audit.record(OWNER, "queue.pause", "3")
    assert [entry.target for entry in await audit.read()] == ["3"]
