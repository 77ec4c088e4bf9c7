"""What the parts of the model share: time, randomness, counters, settings, JSON builders."""

from __future__ import annotations

import asyncio
import itertools
import random
import uuid
from collections.abc import Callable

from jobyard.demo.fake_github.accounts_json import AccountsJson
from jobyard.demo.fake_github.actions_json import ActionsJson
from jobyard.demo.fake_github.settings import Faults, Timings

ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


class Core:
    def __init__(
        self,
        *,
        clock: Callable[[], float],
        rng: random.Random,
        timings: Timings,
        faults: Faults,
        host: str,
        version: str,
    ) -> None:
        self.clock = clock
        self.rng = rng
        self.timings = timings
        self.faults = faults
        self.host = host
        self.version = version
        self.accounts_json = AccountsJson(host)
        self.actions_json = ActionsJson(self.accounts_json)
        self._counters: dict[str, itertools.count[int]] = {}
        # By identity: handles hash by their time, and under a virtual clock thousands have the same.
        self._timers: dict[int, asyncio.TimerHandle] = {}

    def next_id(self, kind: str, first: int = 1) -> int:
        return next(self._counters.setdefault(kind, itertools.count(first)))

    def hits(self, fault: str) -> bool:
        return self.faults.hits(fault, self.rng)

    def guid(self) -> str:
        return str(uuid.UUID(int=self.rng.getrandbits(128), version=4))

    def text(self, length: int) -> str:
        return "".join(self.rng.choices(ALPHABET, k=length))

    def sha(self) -> str:
        return f"{self.rng.getrandbits(160):040x}"

    def later(self, seconds: float, callback: Callable[..., None], *arguments: object) -> asyncio.TimerHandle:
        """Call back after a time of the running event loop, which tests may turn themselves."""
        loop = asyncio.get_running_loop()

        def run() -> None:
            self._timers.pop(id(handle), None)
            callback(*arguments)

        handle = loop.call_later(seconds, run)
        self._timers[id(handle)] = handle
        return handle

    def cancel(self, handle: asyncio.TimerHandle | None) -> None:
        if handle is not None:
            handle.cancel()
            self._timers.pop(id(handle), None)

    def close(self) -> None:
        for handle in self._timers.values():
            handle.cancel()
        self._timers.clear()
