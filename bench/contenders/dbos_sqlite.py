"""DBOS on SQLite: durable steps."""

from __future__ import annotations

from bench.contender import Engine
from bench.peer import Peer

_PEER = Peer("DBOS", Engine.SQLITE, "steps kept, resumed by the same executor", share=0.004, environment="dbos")

CONTENDER = _PEER.contender(
    _PEER.steps("steps-one", "one workflow", 0.004),
    _PEER.steps("steps-many", "workflows of 10 steps", 0.004, each=10),
)
