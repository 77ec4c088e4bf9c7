"""SAQ on PostgreSQL."""

from __future__ import annotations

from bench.contender import Engine
from bench.peer import Peer

_PEER = Peer("SAQ", Engine.POSTGRES, "at least once, kept 10 minutes", share=0.006, environment="saq")

CONTENDER = _PEER.contender(
    _PEER.drain(),
    _PEER.enqueue(0.01),
    _PEER.enqueue(0.015, callers=50),
    _PEER.latency(),
)
