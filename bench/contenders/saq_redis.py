"""SAQ on Redis."""

from __future__ import annotations

from bench.contender import Engine
from bench.peer import Peer

_PEER = Peer("SAQ", Engine.REDIS, "at least once, kept 10 minutes", share=0.024, environment="saq")

CONTENDER = _PEER.contender(
    _PEER.drain(),
    _PEER.enqueue(0.04),
    _PEER.enqueue(0.06, callers=50),
    _PEER.latency(),
)
