"""Runs of workflow files in tests, and workers that die at a chosen checkpoint."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any, Literal

import pytest
from tests.workflows.conftest import World

from jobyard import JobHandle
from jobyard.app.declarations import declarations_of
from jobyard.app.executors import make_executor
from jobyard.domain.state import Settlement, Transition
from jobyard.domain.workflow_files.parse import parse_workflow
from jobyard.operations.workflow_catalog import WorkflowCatalog
from jobyard.ports.workflow_store import Checkpoint
from jobyard.worker.attempt import AttemptRuntime, JobAttempt

LEASE_SECONDS = 10.0


async def start(world: World, steps: list[dict[str, Any]], given: Any = None, /, **more: Any) -> JobHandle[Any]:
    """Insert a run of a workflow with these steps; `more` are further keys of the file."""
    text = json.dumps({"id": "flow", "steps": steps, **more})
    catalog = WorkflowCatalog({"flow": parse_workflow(text, file="workflows/flow.json")})
    job = catalog.new_job("flow", given)
    await world.store.insert([job])
    return world.yard.job_handle(job.id)


async def run(world: World, steps: list[dict[str, Any]], given: Any = None, /, **more: Any) -> Any:
    """The output of a run."""
    return await world.result(await start(world, steps, given, **more))


def step(name: str, kind: str = "work", **more: Any) -> dict[str, Any]:
    return {"id": name, "kind": kind, **more}


class FaultyWorker:
    """A worker that runs one job at a time, and dies once, at a checkpoint: before it is written, or after."""

    def __init__(
        self,
        world: World,
        patch: pytest.MonkeyPatch | None = None,
        *,
        dies_at: int = 0,
        when: Literal["before", "after"] = "before",
    ) -> None:
        self._world = world
        self._dies_at, self._when = dies_at, when
        self._checkpoint = world.store.checkpoint
        self._outbox: list[Settlement] = []
        self._dies = asyncio.Event()
        self._is_over = asyncio.Event()  # ends what a dead process would not have ended
        self.checkpoints = 0
        if patch is not None:
            patch.setattr(world.store, "checkpoint", self._write)

    async def _write(self, checkpoints: Sequence[Checkpoint]) -> Any:
        self.checkpoints += 1
        is_last = self.checkpoints == self._dies_at
        if is_last and self._when == "before":
            await self._die()
        found = await self._checkpoint(checkpoints)
        if is_last:
            await self._die()
        return found

    async def _die(self) -> None:
        self._dies.set()
        await self._is_over.wait()
        raise ConnectionResetError

    async def claim(self) -> JobAttempt:
        """Start the next job."""
        found = await self._claim()
        assert found is not None
        return found

    async def _claim(self) -> JobAttempt | None:
        store = self._world.store
        outbox, self._outbox = self._outbox, []
        response = await store.exchange("worker", outbox, (), 1, LEASE_SECONDS)
        if not response.leases:
            return None
        executor = make_executor(declarations_of(self._world.yard).handlers, store, 1 << 20)
        runtime = AttemptRuntime("worker", store, executor, self._finished, lambda *_: None, lambda _: None)
        return JobAttempt(runtime, response.leases[0], asyncio.get_running_loop())

    def _finished(self, attempt: JobAttempt, transition: Transition | None) -> None:
        if transition is not None:
            self._outbox.append(Settlement(attempt.key, transition))

    async def settle(self, attempt: JobAttempt) -> None:
        await asyncio.wait({attempt.task})
        await self._world.store.exchange("worker", self._outbox, (), 0, LEASE_SECONDS)
        self._outbox = []

    async def run(self) -> bool:
        """Run all due jobs; whether it died once, and another one went on."""
        while (attempt := await self._claim()) is not None:
            if self._dies.is_set():
                await asyncio.wait({attempt.task})
                continue
            dying = asyncio.create_task(self._dies.wait())
            await asyncio.wait({attempt.task, dying}, return_when=asyncio.FIRST_COMPLETED)
            if dying.done():
                attempt.lose()
                await asyncio.wait({attempt.task})
                self._world.clock.advance(LEASE_SECONDS + 1)
                # A call that was under way when it died may still hold the lease for a moment.
                while not await self._world.store.reclaim():  # noqa: ASYNC110 - the store sends no signal
                    await asyncio.sleep(0.01)
            dying.cancel()
        self._is_over.set()
        await asyncio.sleep(0)
        return self._dies.is_set()
