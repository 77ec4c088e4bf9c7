"""huey on Redis."""

from __future__ import annotations

from bench.contender import Engine
from bench.peer import Peer

_PEER = Peer("huey", Engine.REDIS, "at most once", share=0.036)

CONTENDER = _PEER.contender(
    _PEER.drain(),
    _PEER.enqueue(0.03),
    _PEER.latency(),
)
