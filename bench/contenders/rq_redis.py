"""RQ on Redis."""

from __future__ import annotations

from bench.contender import Engine
from bench.peer import Peer

_PEER = Peer("RQ", Engine.REDIS, "at least once, deleted", share=0.0042, environment="rq")

CONTENDER = _PEER.contender(
    _PEER.drain(about="SimpleWorker"),
    _PEER.insert("enqueue_many of 1,000", 0.1),
    _PEER.enqueue(0.025),
    _PEER.latency(),
)
