"""dramatiq on Redis."""

from __future__ import annotations

from bench.contender import Engine
from bench.peer import Peer

_PEER = Peer("dramatiq", Engine.REDIS, "at least once, deleted", share=0.036)

CONTENDER = _PEER.contender(
    _PEER.drain(about="16 threads"),
    _PEER.enqueue(0.03),
    _PEER.latency(),
)
