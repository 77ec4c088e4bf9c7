"""BullMQ for Python on Redis."""

from __future__ import annotations

from bench.contender import Engine
from bench.peer import Peer

_PEER = Peer("BullMQ Python", Engine.REDIS, "at least once, locks, deleted", share=0.018, environment="bullmq")

CONTENDER = _PEER.contender(
    _PEER.drain(),
    _PEER.insert("addBulk of 1,000", 0.15),
    _PEER.enqueue(0.04),
    _PEER.enqueue(0.06, callers=50),
    _PEER.latency(),
)
