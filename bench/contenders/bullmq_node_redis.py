"""BullMQ on Node, the quickest of the peers."""

from __future__ import annotations

from bench.contender import Engine
from bench.peer import Peer

_PEER = Peer("BullMQ Node", Engine.REDIS, "at least once, locks, deleted", share=0.21, environment="bullmq-node")

CONTENDER = _PEER.contender(
    _PEER.drain(),
    _PEER.drain("drain-kept", about="records kept", guarantee="at least once, locks, kept", keep=1),
    _PEER.insert("addBulk of 1,000", 0.25),
    _PEER.enqueue(0.04),
    _PEER.enqueue(0.15, callers=50),
    _PEER.latency(),
    _PEER.children("flow", "one flow", 0.05),
)
