"""What only the memory store has to care for."""

from __future__ import annotations

from jobyard.stores.memory import MemoryStore
from jobyard.testing.clock import ManualClock


async def test_expired_documents_do_not_pile_up() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    await store.put("events", "kept", b"")
    for number in range(5000):
        await store.put("events", f"{number:06d}", b"", expire_seconds=15)
        clock.advance(0.1)
    assert len(store._collections["events"]) < 1500
    assert len(await store.fetch_all("events")) == 150
