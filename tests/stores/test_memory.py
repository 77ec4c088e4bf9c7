"""Memory store: what the conformance suite cannot see."""

from __future__ import annotations

import sys

from jobyard.stores.memory import MemoryStore
from jobyard.testing.clock import ManualClock


async def test_expired_documents_do_not_pile_up() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    data = b"each stored document refers to this object"
    await store.put("events", "kept", data)
    for number in range(5000):
        await store.put("events", f"{number:06d}", data, expire_seconds=15)
        clock.advance(0.1)
    assert sys.getrefcount(data) < 1500
    assert len(await store.fetch_all("events")) == 150
