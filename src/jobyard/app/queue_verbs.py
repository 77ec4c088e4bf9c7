"""Jobyard methods for queues, groups, workers and kinds: the same as those of the client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Unpack

from jobyard.api.convert import group_view, worker_view
from jobyard.api.schemas.jobs import KindList
from jobyard.api.schemas.queues import GroupView, SettingsChange, WorkerView
from jobyard.domain import options
from jobyard.domain.instant import as_datetime
from jobyard.operations import queue_settings
from jobyard.operations.commands import Commands, found_queue
from jobyard.operations.organizations import known_group
from jobyard.operations.worker_control import Control, control_worker
from jobyard.ports.admin_store import QueueInfo

if TYPE_CHECKING:
    from jobyard.app.declarations import Declarations
    from jobyard.ports.store import Store


class QueueVerbs:
    store: Store
    _declarations: Declarations

    async def queues(self) -> list[QueueInfo]:
        """All queues with their counts and settings, by name."""
        return await queue_settings.with_origins(self.store, await self.store.queues())

    async def configure(self, queue: str, **settings: Unpack[SettingsChange]) -> QueueInfo:
        """Create a queue, or change its settings. Omitted settings stay; None removes a limit.

        A change stays until `reset_settings`, also when a process starts that declares other settings.
        """
        await queue_settings.change(self.store, options.check_name("queue", queue), settings)
        return await self._queue(queue)

    async def reset_settings(self, queue: str) -> QueueInfo:
        """Undo the changes made with `configure`: the declared settings apply again, or the defaults."""
        await self._require_queue(queue)
        await queue_settings.reset(self.store, queue)
        return await self._queue(queue)

    async def pause(self, queue: str, group: str | None = None) -> None:
        """Start no more jobs of the queue, or of one group; running jobs continue."""
        await self._require_queue(queue)
        await Commands(self.store).pause(queue, group)

    async def resume(self, queue: str, group: str | None = None) -> None:
        """Undo `pause`."""
        await self._require_queue(queue)
        await Commands(self.store).pause(queue, group, paused=False)

    async def drain(self, queue: str) -> int:
        """Delete all waiting jobs of a queue; running jobs continue. Returns the number of deleted jobs."""
        await self._require_queue(queue)
        return await Commands(self.store).drain(queue)

    async def remove_queue(self, queue: str) -> None:
        """Remove a queue that has no jobs, with its settings, limits and pauses."""
        if not await queue_settings.remove(self.store, options.check_name("queue", queue)):
            found_queue(queue, await self.store.queues())

    async def groups(self, queue: str, *, page_size: int = 200) -> AsyncIterator[GroupView]:
        """Groups with jobs, a limit or a pause, by name; first the jobs without a group."""
        # A page of one may be the jobs without a group, which have no name to continue after.
        page_size, after = max(2, page_size), None
        while page := await self.store.groups(queue, page_size, after):
            for group in page:
                yield group_view(group)
            if len(page) < page_size:
                return
            after = page[-1].name

    async def set_limit(self, queue: str, group: str, limit: int) -> None:
        """Set the limit of a group: 0 blocks it, 1 makes it serial."""
        await self._require_queue(queue)
        await Commands(self.store).set_limit(queue, await known_group(self.store, queue, group), limit)

    async def remove_limit(self, queue: str, group: str) -> None:
        """Undo `set_limit`."""
        await self._require_queue(queue)
        await Commands(self.store).remove_limit(queue, await known_group(self.store, queue, group))

    async def workers(self) -> list[WorkerView]:
        """The live workers."""
        return [worker_view(each, as_datetime) for each in await self.store.workers()]

    async def quiet(self, worker_id: str) -> None:
        """Make a worker claim no more jobs; running jobs continue, and the worker stays."""
        await control_worker(self.store, worker_id, Control.QUIET)

    async def stop(self, worker_id: str) -> None:
        """Stop a worker, as SIGTERM does."""
        await control_worker(self.store, worker_id, Control.STOP)

    async def kinds(self) -> KindList:
        """The kinds that have a handler here, with the defaults of their jobs."""
        return KindList(items=self._declarations.job_factory.kinds() or (), any_kind=False)

    async def _queue(self, name: str) -> QueueInfo:
        return next(each for each in await self.queues() if each.name == name)

    async def _require_queue(self, queue: str) -> None:
        """Raise BadOption for a queue that neither the program nor the store has."""
        if not self._declarations.has_queue(options.check_name("queue", queue)):
            found_queue(queue, await self.store.queues())
