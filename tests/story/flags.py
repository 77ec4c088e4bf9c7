"""Files that processes use to signal each other; they survive any kill."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path


class Flags:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def put(self, name: str) -> None:
        (self._folder / name).touch()

    def has(self, *names: str) -> bool:
        """Any of them."""
        return any((self._folder / name).exists() for name in names)

    def paths(self, prefix: str) -> list[Path]:
        return sorted(self._folder.glob(f"{prefix}*"))

    def count(self, prefix: str) -> int:
        return len(self.paths(prefix))

    async def wait(self, *names: str) -> None:
        while not self.has(*names):  # noqa: ASYNC110  # another process puts it
            await asyncio.sleep(0.02)

    def wait_blocking(self, name: str) -> None:
        while not self.has(name):
            time.sleep(0.005)
