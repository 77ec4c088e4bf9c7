"""oban for Python on PostgreSQL."""

from __future__ import annotations

from bench.contender import Engine
from bench.peer import Peer

_PEER = Peer("oban", Engine.POSTGRES, "at least once, kept a day", share=0.08)

CONTENDER = _PEER.contender(
    _PEER.drain(about="100 at once"),
    _PEER.insert("enqueue_many of 1,000", 0.1),
    _PEER.enqueue(0.02),
    _PEER.enqueue(0.03, callers=50),
    _PEER.latency(),
)
