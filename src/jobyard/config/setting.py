"""One setting of the program."""

from __future__ import annotations

import msgspec


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One environment variable, its key in jobyard.yaml and the flag that overrides both, its default, what it does."""

    variable: str
    key: str = ""
    flag: str | None = None
    default: str = ""
    secret: bool = False  # may also be read from a file that the variable with _FILE names; never shown
    doc: str
