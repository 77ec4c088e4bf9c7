"""How one exchange becomes several: settle everywhere, then claim here and there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from jobyard.domain.lease import LeaseKey
from jobyard.domain.state import Settlement
from jobyard.ports.job_store import Exchange
from jobyard.ports.store import Store
from jobyard.stores.sharded.parts import Part, Parts, bare

Answers = list[tuple[Part, Exchange]]
# A wait is renewed this often, whatever the stores may have forgotten.
WAIT_SECONDS = 30.0


class Claiming(Parts):
    def __init__(self, default: Store, others: Mapping[str, Store]) -> None:
        super().__init__(default, others)
        self._turn = 0
        # Taken by one store while another failed: the worker hands all of them in again, and would be refused.
        self._taken: set[LeaseKey] = set()

    def _sorted(self, settlements: Sequence[Settlement]) -> tuple[dict[Part, list[Settlement]], list[LeaseKey]]:
        """By the store that gave the lease; and the keys of leases that none of these gave."""
        of_part: dict[Part, list[Settlement]] = {}
        unknown: list[LeaseKey] = []
        for settlement in settlements:
            part = self._of_key(settlement.key)
            if part is None:
                unknown.append(settlement.key)
            elif settlement.key in self._taken:
                self._taken.discard(settlement.key)
            else:
                of_part.setdefault(part, []).append(Settlement(bare(settlement.key), settlement.transition))
        return of_part, unknown

    async def _settle_all(self, worker: str, of_part: dict[Part, list[Settlement]], lease_seconds: float) -> Answers:
        parts = list(of_part)
        answers = await asyncio.gather(
            *(part.store.exchange(worker, of_part[part], part.queues, 0, lease_seconds) for part in parts),
            return_exceptions=True,
        )
        done = [(part, answer) for part, answer in zip(parts, answers, strict=True) if isinstance(answer, Exchange)]
        for answer in answers:
            if isinstance(answer, BaseException):
                for part, taken in done:
                    keys = {settlement.key for settlement in of_part[part]} - set(taken.refused)
                    self._taken.update(part.keys(keys))
                raise answer
        return done

    async def _claim(
        self, worker: str, asked: Mapping[Part, tuple[str, ...]], wanted: int, lease_seconds: float
    ) -> Answers:
        """What was claimed is answered, even if another store fails: it fails again when nothing else is there."""
        answers: Answers = []
        trouble: Exception | None = None
        left = wanted
        for part in self._in_turn(list(asked)):
            try:
                answer = await part.store.exchange(worker, (), asked[part], left, lease_seconds)
            except Exception as error:
                trouble = error
            else:
                answers.append((part, answer))
                left -= len(answer.leases)
            if left == 0 < wanted:
                break
        if trouble is not None and left == wanted:
            raise trouble
        return answers

    def _in_turn(self, parts: list[Part]) -> list[Part]:
        """Nobody is always first: with few free slots the others would starve."""
        if not parts:
            return []
        self._turn += 1
        start = self._turn % len(parts)
        return parts[start:] + parts[:start]

    async def _first_work(self, asked: Mapping[Part, tuple[str, ...]], until: asyncio.Future[None]) -> None:
        """Returns when any store may have work, or `until` is done."""
        look = asyncio.ensure_future(self._any_work(asked, WAIT_SECONDS))
        waiting: list[asyncio.Future[Any]] = [look, until]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if not look.done():
            look.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await look
        else:
            look.result()

    async def _any_work(self, asked: Mapping[Part, tuple[str, ...]], timeout_seconds: float) -> bool:
        tasks = [
            asyncio.ensure_future(part.store.wait_for_work(queues, timeout_seconds)) for part, queues in asked.items()
        ]
        try:
            for earliest in asyncio.as_completed(tasks):
                if await earliest:
                    return True
            return False
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
