"""A worker with a sandbox that runs nothing, beside the dependencies, and requests for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.sandbox.fake_daemon import FakeDaemon, daemon
from tests.server.scenes import api
from tests.server.support import Scene, tell_of_languages

from jobyard.executors.by_kind import ExecutorByKind
from jobyard.executors.python.executor import PythonExecutor
from jobyard.executors.python.handlers import HandlerRegistry
from jobyard.executors.sandbox.client import SandboxClient
from jobyard.executors.sandbox.executor import SandboxExecutor
from jobyard.executors.sandbox.live_output import LiveOutput
from jobyard.executors.sandbox.program import KIND
from jobyard.observability.logs import LogObserver
from jobyard.worker.worker import Worker


@asynccontextmanager
async def programs() -> AsyncIterator[Scene]:
    """A door that has heard of two languages."""
    async with api() as scene:
        await tell_of_languages(scene.store, "python", "c")
        yield scene


@asynccontextmanager
async def running(scene: Scene, folder: Path) -> AsyncIterator[FakeDaemon]:
    """A worker with a sandbox."""
    async with daemon(folder) as fake:
        client, live = SandboxClient(fake.path), LiveOutput(scene.store)
        await client.start()
        executor = ExecutorByKind({KIND: SandboxExecutor(client, live=live)}, PythonExecutor(HandlerRegistry()))
        async with Worker(scene.store, executor, LogObserver(), concurrency=4):
            yield fake
        await live.stop()
        await client.stop()


def body(*lines: str, **given: Any) -> dict[str, Any]:
    return {"language": "python", "source_code": "\n".join(lines) or "out x", **given}
