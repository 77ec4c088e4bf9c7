"""chancy on PostgreSQL."""

from __future__ import annotations

from bench.contender import Engine
from bench.peer import Peer

_PEER = Peer("chancy", Engine.POSTGRES, "at least once, kept a day", share=0.06)

CONTENDER = _PEER.contender(
    _PEER.drain(about="asyncio, 1,000 at once"),
    _PEER.insert("push_many of 1,000", 0.1),
    _PEER.enqueue(0.02),
    _PEER.enqueue(0.03, callers=50),
    _PEER.latency(),
)
