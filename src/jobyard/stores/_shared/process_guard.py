"""Guard against the use of an open store in a forked process, where its threads and connections do not work."""

from __future__ import annotations

import os

from jobyard.errors import NotPossible


class ProcessGuard:
    """Remembers the process that opened a store. `os.getpid` costs less than a tenth of a microsecond."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._process: int | None = None

    def opened(self) -> None:
        self.require_same()
        self._process = os.getpid()

    def closed(self) -> None:
        self.require_same()
        self._process = None

    def require_same(self) -> None:
        """Raise in a child of the process that opened the store: a call would wait forever, or mix up answers."""
        if self._process is not None and self._process != os.getpid():
            raise NotPossible(
                f"Cannot use the store {self._url} in this process: its parent opened it before the fork. "
                "Open it after the fork."
            )
