"""One setting: variable, key, flag, default and description."""

from __future__ import annotations

import msgspec


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One environment variable, its key in jobyard.yaml, and the flag that overrides both."""

    variable: str
    key: str = ""
    flag: str | None = None
    default: str = ""
    secret: bool = False  # never shown; the variable with _FILE may name a file that holds it
    doc: str
