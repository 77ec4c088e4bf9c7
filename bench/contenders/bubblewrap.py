"""bubblewrap around the interpreter: namespaces for each program, made when it is asked for."""

from __future__ import annotations

from bench.contender import Contender, Engine
from bench.contenders.bare_python3 import cases
from bench.environments import environments
from bench.yard.starting import BUBBLEWRAP

CONTENDER = Contender(
    "bubblewrap",
    environments()["bubblewrap"].version,
    cases("bubblewrap, python3 -I -S", "namespaces; no filter, no limits", BUBBLEWRAP),
    Engine.SANDBOX,
    "bubblewrap",
)
