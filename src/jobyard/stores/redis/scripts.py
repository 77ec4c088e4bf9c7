"""The Lua commands, one per file, loaded into the server as one library of functions.

The functions of a library are created once, when it is loaded. A script called by EVALSHA creates all of its functions
again in every call: with this many, that cost more than the work itself.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

# In the order of loading: each may use those before it.
SHARED = (
    "_base",
    "_queue_line",
    "_record",
    "_history",
    "_ended",
    "_job",
    "_retention",
    "_settle",
    "_claim",
    "_cancel_requests",
    "_replay",
    "_waiting_claims",
    "_insert",
)


@dataclass(frozen=True, slots=True)
class Library:
    name: str
    text: str


@lru_cache
def built_in_commands() -> tuple[str, ...]:
    """The commands of the server that the library uses.

    >>> [name for name in ("HSET", "PUBLISH", "ZADD", "FLUSHALL") if name in built_in_commands()]
    ['HSET', 'PUBLISH', 'ZADD']
    """
    return tuple(sorted(set(re.findall(r"(?:call|batched)\('([A-Z]+)'", library().text))))


@lru_cache
def library() -> Library:
    """Named after a hash of its text, so that two versions of jobyard can use one server side by side.

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
    # Each command is in a function of its own: its definitions stay local, and Lua allows 200 of them per function.
    commands = [f"do (function()\n{texts[name]}end)() end\n" for name in sorted(texts)]
    body = "".join([*shared, *commands])
    name = f"jobyard_{hashlib.sha256(body.encode()).hexdigest()[:12]}"
    return Library(name, f"#!lua name={name}\nlocal LIBRARY = '{name}'\n{body}")
