"""The Lua commands, one per file; shared pieces are put in where a file says `-- include`."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

INCLUDE = re.compile(r"^-- include (_\w+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Script:
    name: str
    text: str
    sha: str


@lru_cache
def script(name: str) -> Script:
    """
    >>> script("append").text.startswith("#!lua")
    True
    """
    text = INCLUDE.sub(lambda found: _read(found[1]), _read(name))
    return Script(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


def _read(name: str) -> str:
    return files("jobyard.stores.redis.lua").joinpath(f"{name}.lua").read_text("utf-8")
