"""Findings of `diagnose` for the memory store."""

from __future__ import annotations

from jobyard.ports.store import Finding, Level


def findings() -> list[Finding]:
    return [Finding(Level.WARN, "memory", "data is lost when the process ends", "use this store in tests only")]
