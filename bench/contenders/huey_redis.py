"""huey on Redis."""

from __future__ import annotations

from bench.contender import Engine
from bench.peer import Peer

_PEER = Peer("huey", Engine.REDIS, "at most once", share=0.06)

CONTENDER = _PEER.contender(
    _PEER.drain(),
    _PEER.enqueue(0.06),
    _PEER.latency(),
)
