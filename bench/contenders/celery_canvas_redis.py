"""Celery's canvas on Redis: chains, groups and chords."""

from __future__ import annotations

from bench.contender import Engine
from bench.peer import Peer

_PEER = Peer(
    "Celery canvas", Engine.REDIS, "at least once, chords on success", share=0.01, environment="celery",
    script="celery_canvas",
)  # fmt: skip

CONTENDER = _PEER.contender(
    _PEER.children("chains", "chains of 10", 0.01),
    _PEER.children("group", "one group", 0.01),
    _PEER.children("chord", "one chord", 0.008),
)
