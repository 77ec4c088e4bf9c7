"""jobyard on Redis."""

from __future__ import annotations

from importlib.metadata import version

from bench.contender import Contender, Durability, Engine
from bench.yard.rows import rows

CONTENDER = Contender("jobyard", version("jobyard"), rows(Durability.SECOND_LOST), Engine.REDIS)
