"""pgqueuer on PostgreSQL, with batches of 100 and more."""

from __future__ import annotations

from bench.contender import Engine
from bench.peer import Peer

_PEER = Peer("pgqueuer", Engine.POSTGRES, "at least once, deleted", share=0.21)

CONTENDER = _PEER.contender(
    _PEER.drain(about="batches of 100", batch=100, pool=1),
    _PEER.drain("drain-500", about="batches of 500", batch=500, pool=1),
    _PEER.drain("drain-1000", about="batches of 1,000", batch=1000, pool=1),
    _PEER.insert("lists of 1,000", 0.5),
    _PEER.enqueue(0.025),
    _PEER.enqueue(0.025, callers=50),
    _PEER.latency(),
)
