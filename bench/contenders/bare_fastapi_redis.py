"""A bare FastAPI route, beside jobyard's on Redis."""

from __future__ import annotations

from bench.contender import Engine
from bench.yard.bare import bare

CONTENDER = bare(Engine.REDIS)
