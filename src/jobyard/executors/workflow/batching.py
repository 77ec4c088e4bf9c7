"""Reads of histories and inserts of child jobs by all workflows of a worker, made together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from jobyard.domain.history import HistoryEntry
from jobyard.domain.job import NewJob
from jobyard.errors import BadInput
from jobyard.executors.workflow.checkpoints import CheckpointBatcher
from jobyard.executors.workflow.relay import load_history
from jobyard.ports.store import Store

Item = TypeVar("Item")
Answer = TypeVar("Answer")

# Items of one call; a larger call would hold up the store for others.
MAX_BATCH = 100
# Entries read of one scope; a longer history is read on in pages.
FIRST_PAGE = 1000


class Batcher(Generic[Item, Answer]):
    """The first item is handled at once; those that come meanwhile are handled together."""

    def __init__(self, handle: Callable[[list[Item]], Awaitable[list[Answer]]]) -> None:
        self._handle = handle
        self._waiting: list[tuple[Item, asyncio.Future[Answer]]] = []
        self._worker: asyncio.Task[None] | None = None

    async def add(self, item: Item) -> Answer:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        self._waiting.append((item, future))
        if self._worker is None:
            self._worker = loop.create_task(self._run())
        return await future

    async def _run(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:MAX_BATCH], self._waiting[MAX_BATCH:]
                await self._answer(batch)
        finally:
            self._worker = None

    async def _answer(self, batch: list[tuple[Item, asyncio.Future[Answer]]]) -> None:
        try:
            answers = await self._handle([item for item, _ in batch])
        except BadInput as error:
            if len(batch) > 1:
                # Nothing was written, because of one of them. One by one, so that it does not fail the others.
                for each in batch:
                    await self._answer([each])
            else:
                fail(batch, error)
            return
        except Exception as error:
            fail(batch, error)
            return
        for (_, future), answer in zip(batch, answers, strict=True):
            if not future.done():
                future.set_result(answer)


def fail(batch: list[tuple[Item, asyncio.Future[Answer]]], error: Exception) -> None:
    for _, future in batch:
        if not future.done():
            future.set_exception(error)


class StoreBatches:
    """The batched calls of the workflows of one worker."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.checkpoints = CheckpointBatcher(store)
        self._histories: Batcher[tuple[str, tuple[str, ...]], list[list[HistoryEntry]]] = Batcher(self._read)
        self._inserts: Batcher[NewJob, str] = Batcher(self._insert)

    async def histories(self, job_id: str, *scopes: str) -> list[list[HistoryEntry]]:
        """All entries of these scopes of a job."""
        found = await self._histories.add((job_id, scopes))
        for scope, entries in zip(scopes, found, strict=True):
            if len(entries) >= FIRST_PAGE:
                entries.extend(await load_history(self._store, job_id, scope, entries[-1].number))
        return found

    async def insert(self, job: NewJob) -> str:
        """The id of the job, or of the one that holds its unique key."""
        return await self._inserts.add(job)

    async def _read(self, wanted: list[tuple[str, tuple[str, ...]]]) -> list[list[list[HistoryEntry]]]:
        flat = [(job_id, scope) for job_id, scopes in wanted for scope in scopes]
        pages = iter(await self._store.histories(flat, FIRST_PAGE))
        return [[next(pages) for _ in scopes] for _, scopes in wanted]

    async def _insert(self, jobs: list[NewJob]) -> list[str]:
        return [each.id for each in await self._store.insert(jobs)]
