"""The Lua commands, one per file, loaded into the server as one library.

A library's functions are made once, when it is loaded. A script called by EVALSHA makes all of its own anew in every
call: with this many, that cost more than the work.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

# Each may use those before it.
SHARED = ("_base", "_line", "_job", "_settle", "_claim", "_stopping", "_recall", "_orders", "_insert")


@dataclass(frozen=True, slots=True)
class Library:
    name: str
    text: str


@lru_cache
def library() -> Library:
    """Named after its text: another version of jobyard brings its own, and both can be used side by side.

    >>> library().text.startswith(f"#!lua name={library().name}")
    True
    """
    folder = files("jobyard.stores.redis.lua")
    texts = {
        entry.name.removesuffix(".lua"): entry.read_text("utf-8")
        for entry in folder.iterdir()
        if entry.name.endswith(".lua")
    }
    shared = [texts.pop(name) for name in SHARED]
    # Each command in a block of its own: what one defines is not seen by the others.
    commands = [f"do\n{texts[name]}end\n" for name in sorted(texts)]
    body = "".join([*shared, *commands])
    name = f"jobyard_{hashlib.sha256(body.encode()).hexdigest()[:12]}"
    return Library(name, f"#!lua name={name}\nlocal LIBRARY = '{name}'\n{body}")


def command(name: str) -> str:
    """What a command is called in the server."""
    return f"{library().name}_{name}"
