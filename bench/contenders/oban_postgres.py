"""oban for Python on PostgreSQL."""

from __future__ import annotations

from bench.contender import Engine
from bench.peer import Peer

_PEER = Peer("oban", Engine.POSTGRES, "at least once, kept a day", share=0.048)

CONTENDER = _PEER.contender(
    _PEER.drain(about="100 at once"),
    _PEER.insert("enqueue_many of 1,000", 0.05),
    _PEER.enqueue(0.01),
    _PEER.enqueue(0.015, callers=50),
    _PEER.latency(),
)
