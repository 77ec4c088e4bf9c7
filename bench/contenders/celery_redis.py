"""Celery on Redis."""

from __future__ import annotations

from bench.contender import Engine
from bench.peer import Peer

_PEER = Peer("Celery", Engine.REDIS, "at least once, deleted", share=0.009, environment="celery")

CONTENDER = _PEER.contender(
    _PEER.drain(about="solo, acks late"),
    _PEER.enqueue(0.01),
    _PEER.latency(),
)
