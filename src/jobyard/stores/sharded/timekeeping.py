"""The verbs of the clock: a schedule is armed in every store and decided in that of its queue."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from jobyard.domain.instant import Instant
from jobyard.ports.schedule_store import Armed, Decided, Decision, Tick, TickInfo, WorkerInfo
from jobyard.ports.store import Store
from jobyard.stores.sharded.parts import Part, each
from jobyard.stores.sharded.patience import Patience

T = TypeVar("T")


class TimekeepingVerbs(Patience):
    async def now(self) -> Instant:
        return await self._default.now()

    async def arm(self, schedule: str, revision: int, since: Instant | None = None) -> bool:
        """A schedule that moves to another store goes on there where it was.

        Raises while any store is away: what that one decided would not be known to the others.
        """
        if since is None:
            since = await self._reached(schedule)
        if not all(await each(self._parts, lambda part: part.store.arm(schedule, revision, since))):
            return False
        # From here on nobody decides with the revision before; what was decided meanwhile is known everywhere.
        reached = await self._reached(schedule)
        if reached is None or (since is not None and reached <= since):
            return True
        return all(await each(self._parts, lambda part: part.store.arm(schedule, revision, reached)))

    async def _reached(self, schedule: str) -> Instant | None:
        newest = await each(self._parts, lambda part: part.store.ticks(schedule, 1))
        return max((tick.at for some in newest for tick in some), default=None)

    async def disarm(self, schedule: str, revision: int | None = None) -> bool:
        return any(await each(self._parts, lambda part: part.store.disarm(schedule, revision)))

    async def armed(self, limit: int = 1000, after: str | None = None) -> list[Armed]:
        """The furthest instant of all stores, and the earliest revision; 0 where a store has still to be armed.

        A store that is away is left out, but for the default one.
        """
        answers = await self._answers(lambda store: store.armed(limit, after))
        found: dict[str, list[Armed]] = {}
        for one in (one for some in answers for one in some):
            found.setdefault(one.schedule, []).append(one)
        return [
            Armed(
                name,
                min(one.revision for one in found[name]) if len(found[name]) == len(answers) else 0,
                max(one.decided_until for one in found[name]),
            )
            for name in sorted(found)[:limit]
        ]

    async def decide(self, ticks: Sequence[Tick]) -> list[Decided]:
        """In one step per store; those of a store that is away are answered as AWAY, and keep no other waiting."""
        of_part: dict[Part, list[Tick]] = {}
        for tick in ticks:
            of_part.setdefault(self._of_queue(tick.queue), []).append(tick)
        parts = list(of_part)
        found = await each(parts, lambda part: self._decided(part, of_part[part])) if parts else []
        answers = dict(zip(parts, map(iter, found), strict=True))
        return [next(answers[self._of_queue(tick.queue)]) for tick in ticks]

    async def _decided(self, part: Part, ticks: Sequence[Tick]) -> list[Decided]:
        answers = await self._in_time(part, lambda store: store.decide(ticks))
        return [Decided(Decision.AWAY)] * len(ticks) if answers is None else answers

    async def ticks(self, schedule: str, limit: int = 50, before: Instant | None = None) -> list[TickInfo]:
        """Of all stores: a schedule may have moved from one to another. As `armed`, without those that are away."""
        answers = await self._answers(lambda store: store.ticks(schedule, limit, before))
        merged = sorted((tick for some in answers for tick in some), key=lambda tick: tick.at, reverse=True)
        return merged[:limit]

    async def _answers(self, verb: Callable[[Store], Coroutine[Any, Any, list[T]]]) -> list[list[T]]:
        async def answer(part: Part) -> list[T] | None:
            return await (self._in_time(part, verb) if part.label else verb(part.store))

        return [some for some in await each(self._parts, answer) if some is not None]

    async def heartbeat(self, worker: WorkerInfo, seconds: float) -> None:
        await each(self._parts, lambda part: part.store.heartbeat(worker, seconds))

    async def workers(self) -> list[WorkerInfo]:
        """As the default store has them, and those that only another one knows."""
        answers = await each(self._parts, lambda part: part.store.workers())
        found = {worker.id: worker for workers in reversed(answers) for worker in workers}
        return [found[worker_id] for worker_id in sorted(found)]
