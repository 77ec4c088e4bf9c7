"""taskiq on Redis: its stream acknowledges, its list does not."""

from __future__ import annotations

from bench.contender import Engine
from bench.peer import Peer

_PEER = Peer("taskiq", Engine.REDIS, "at least once, deleted by hand", share=0.036)

CONTENDER = _PEER.contender(
    _PEER.drain(about="stream"),
    _PEER.drain("drain-list", about="list", guarantee="at most once", list=1),
    _PEER.enqueue(0.025),
    _PEER.enqueue(0.05, callers=50),
    _PEER.latency(),
)
