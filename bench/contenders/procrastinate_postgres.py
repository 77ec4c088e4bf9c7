"""procrastinate on PostgreSQL."""

from __future__ import annotations

from bench.contender import Engine
from bench.peer import Peer

_PEER = Peer("procrastinate", Engine.POSTGRES, "at least once, deleted", share=0.0072)

CONTENDER = _PEER.contender(
    _PEER.drain(about="10 at once"),
    _PEER.insert("batches of 1,000", 0.1),
    _PEER.enqueue(0.01),
    _PEER.enqueue(0.01, callers=50),
    _PEER.latency(),
)
