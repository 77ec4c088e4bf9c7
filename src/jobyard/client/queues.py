"""Client methods for queues, groups, workers and kinds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Unpack

from jobyard.api.schemas import queues as schemas
from jobyard.api.schemas.jobs import KindList
from jobyard.client.address import path
from jobyard.client.transport import Transport


class QueueEndpoints:
    _transport: Transport

    async def queues(self) -> list[schemas.QueueView]:
        """All queues with their counts and settings, by name."""
        return [each async for each in self._transport.walk("/v1/queues", schemas.QueuePage, {})]

    async def queue(self, queue: str) -> schemas.QueueView:
        return await self._transport.call("GET", path("v1", "queues", queue), schemas.QueueView)

    async def configure(self, queue: str, **settings: Unpack[schemas.SettingsChange]) -> schemas.QueueView:
        """Create a queue, or change its settings. Omitted settings stay; None removes a limit.

        A change stays until `reset_settings`, also when a process starts that declares other settings.
        """
        body = schemas.SettingsRequest(**settings)
        return await self._transport.call("PATCH", path("v1", "queues", queue), schemas.QueueView, body=body)

    async def reset_settings(self, queue: str) -> schemas.QueueView:
        """Undo the changes made with `configure`: the declared settings apply again, or the defaults."""
        return await self._transport.call("DELETE", path("v1", "queues", queue, "settings"), schemas.QueueView)

    async def pause(self, queue: str, group: str | None = None) -> None:
        """Start no more jobs of the queue, or of one group; running jobs continue."""
        await self._pause(queue, group, "pause")

    async def resume(self, queue: str, group: str | None = None) -> None:
        """Undo `pause`."""
        await self._pause(queue, group, "resume")

    async def _pause(self, queue: str, group: str | None, word: str) -> None:
        of_group = [] if group is None else ["groups", group]
        await self._transport.call("POST", path("v1", "queues", queue, *of_group, word), type(None))

    async def drain(self, queue: str) -> int:
        """Delete all waiting jobs of a queue; running jobs continue. Returns the number of deleted jobs."""
        return (await self._transport.call("POST", path("v1", "queues", queue, "drain"), schemas.DrainResponse)).removed

    async def remove_queue(self, queue: str) -> None:
        """Remove a queue that has no jobs, with its settings, limits and pauses."""
        await self._transport.call("DELETE", path("v1", "queues", queue), type(None))

    def groups(self, queue: str, *, page_size: int = 200) -> AsyncIterator[schemas.GroupView]:
        """Groups with jobs, a limit or a pause, by name; first the jobs without a group."""
        at = path("v1", "queues", queue, "groups")
        return self._transport.walk(at, schemas.GroupPage, {"page_size": page_size})

    async def set_limit(self, queue: str, group: str, limit: int) -> None:
        """Set the limit of a group: 0 blocks it, 1 makes it serial."""
        at = path("v1", "queues", queue, "groups", group, "limit")
        await self._transport.call("PUT", at, type(None), body=schemas.LimitRequest(limit=limit))

    async def remove_limit(self, queue: str, group: str) -> None:
        """Undo `set_limit`."""
        await self._transport.call("DELETE", path("v1", "queues", queue, "groups", group, "limit"), type(None))

    async def workers(self) -> list[schemas.WorkerView]:
        """The live workers."""
        return list((await self._transport.call("GET", "/v1/workers", schemas.WorkerList)).items)

    async def quiet(self, worker_id: str) -> None:
        """Make a worker claim no more jobs; running jobs continue, and the worker stays."""
        await self._transport.call("POST", path("v1", "workers", worker_id, "quiet"), type(None))

    async def stop(self, worker_id: str) -> None:
        """Stop a worker, as SIGTERM does."""
        await self._transport.call("POST", path("v1", "workers", worker_id, "stop"), type(None))

    async def kinds(self) -> KindList:
        """The kinds that have a handler, with the defaults of their jobs."""
        return await self._transport.call("GET", "/v1/kinds", KindList)
