"""Exchanges whose response was lost: their leases are ended soon, instead of being held until they expire."""

from __future__ import annotations

import time

from jobyard.domain.lease import UNACKNOWLEDGED_SECONDS


class UnacknowledgedTokens:
    """By worker, for as long as such leases are renewed: a commit may arrive late."""

    def __init__(self) -> None:
        self._tokens: dict[str, dict[str, float]] = {}

    def add(self, worker: str, token: str) -> None:
        self._tokens.setdefault(worker, {})[token] = time.monotonic()

    def of(self, worker: str) -> list[str]:
        tokens = self._tokens.get(worker)
        if not tokens:
            return []
        now = time.monotonic()
        recent = {token: since for token, since in tokens.items() if now - since < UNACKNOWLEDGED_SECONDS}
        if recent:
            self._tokens[worker] = recent
        else:
            del self._tokens[worker]
        return list(recent)
