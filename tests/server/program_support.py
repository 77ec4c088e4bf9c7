"""A fake sandbox worker beside the API, and program requests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.sandbox.fake_daemon import FakeDaemon, daemon
from tests.server.support import ApiServer, announce_languages, api_server

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
async def programs() -> AsyncIterator[ApiServer]:
    """An API server that knows two languages."""
    async with api_server() as api:
        await announce_languages(api.store, "python", "c")
        yield api


@asynccontextmanager
async def running(api: ApiServer, folder: Path) -> AsyncIterator[FakeDaemon]:
    """A worker with a sandbox."""
    async with daemon(folder) as fake:
        client, live = SandboxClient(fake.path), LiveOutput(api.store)
        await client.start()
        executor = ExecutorByKind({KIND: SandboxExecutor(client, live=live)}, PythonExecutor(HandlerRegistry()))
        async with Worker(api.store, executor, LogObserver(), concurrency=4):
            yield fake
        await live.stop()
        await client.stop()


def body(*lines: str, **given: Any) -> dict[str, Any]:
    return {"language": "python", "source_code": "\n".join(lines) or "out x", **given}
