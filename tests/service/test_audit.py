"""The audit log says who changed what, in order, and stays small per entry."""

from __future__ import annotations

from jobyard.service.access import OWNER, Principal, Role
from jobyard.service.audit import MAX_DETAILS_BYTES, Audit
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
    assert await audit.read(after=first) == entries[1:]
    assert await audit.read(limit=1) == entries[:1]


async def test_an_entry_is_small() -> None:
    audit = Audit(MemoryStore(ManualClock()))
    await audit.record(OWNER, "jobs.cancel", "", {"ids": ["x" * 36] * 1000})
    [entry] = await audit.read()
    assert entry.details == {"left_out": f"more than {MAX_DETAILS_BYTES} bytes"}
