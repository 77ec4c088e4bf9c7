"""The API, a worker and a real sandbox daemon in one process: programs as a client of the server meets them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx2 as httpx
import msgspec
import pytest
from tests.sandbox.machine_tiers import best_tier
from tests.server.support import ApiServer, api_server
from tests.support import eventually

from jobyard.executors.by_kind import ExecutorByKind
from jobyard.executors.python.executor import PythonExecutor
from jobyard.executors.python.handlers import HandlerRegistry
from jobyard.executors.sandbox.client import SandboxClient
from jobyard.executors.sandbox.executor import SandboxExecutor
from jobyard.executors.sandbox.live_input import LiveInput
from jobyard.executors.sandbox.live_output import LiveOutput
from jobyard.executors.sandbox.program import KIND
from jobyard.observability.logs import LogObserver
from jobyard.operations.sandboxes import COLLECTION, sandbox_info
from jobyard.operations.webhooks.executor import KIND as WEBHOOK
from jobyard.operations.webhooks.executor import WebhookExecutor
from jobyard.sandbox.attacks.private_daemon import PrivateDaemon
from jobyard.sandbox.protocol import Tier
from jobyard.worker.worker import Worker

SLOW = {"time_seconds": 30, "memory_mb": 256}


class Judge:
    def __init__(self, api: ApiServer, client: httpx.AsyncClient, sandbox: SandboxClient) -> None:
        self.api, self.client, self._sandbox = api, client, sandbox

    async def needs(self, language: str) -> None:
        state = await self._sandbox.fetch_state()
        while language in state.checking:
            state = await self._sandbox.fetch_state()
        if language not in {known.name for known in state.languages}:
            pytest.skip(f"{language} is not offered: {state.missing.get(language, 'unknown')}")

    async def submit(self, source: str, language: str = "python", at: str = "/execute", **given: Any) -> httpx.Response:
        body = {"language": language, "source_code": source, "limits": SLOW, **given}
        return await self.client.post(at, params={"wait": 60}, json=body)

    async def result(self, source: str, language: str = "python", **given: Any) -> dict[str, Any]:
        response = await self.submit(source, language, **given)
        body: dict[str, Any] = response.json()
        assert response.status_code == 200 and body["status"] == "COMPLETED", response.text
        found: dict[str, Any] = body["result"]
        return found


@asynccontextmanager
async def judge(daemon: PrivateDaemon, *, webhooks_to_private: bool = False) -> AsyncIterator[Judge]:
    if best_tier() not in (Tier.A, Tier.B):
        pytest.skip("checkers and files need a sandbox with a folder")
    async with (
        api_server() as api,
        api.client("submitter") as client,
        program_worker(api, daemon, webhooks_to_private=webhooks_to_private) as sandbox,
    ):
        yield Judge(api, client, sandbox)


@asynccontextmanager
async def program_worker(
    api: ApiServer, daemon: PrivateDaemon, *, webhooks_to_private: bool = False, queues: Sequence[str] = ()
) -> AsyncIterator[SandboxClient]:
    """A worker on the store of the server that runs programs in the daemon, with live output and input."""
    sandbox, live = SandboxClient(str(daemon.socket)), LiveOutput(api.store)
    await sandbox.start()
    state = await sandbox.ready_state()
    await eventually(lambda: _publish(api, sandbox))
    assert state.tier is not None and state.tier is best_tier(), state.reason
    api.dependencies.webhooks_to_private = webhooks_to_private
    programs = SandboxExecutor(sandbox, live=live, live_input=LiveInput(api.store))
    webhooks = WebhookExecutor(api.store, allow_private=webhooks_to_private)
    executor = ExecutorByKind({KIND: programs, WEBHOOK: webhooks}, PythonExecutor(HandlerRegistry()))
    async with Worker(api.store, executor, LogObserver(), concurrency=4, queues=queues):
        yield sandbox
    await live.stop()
    await sandbox.stop()


async def _publish(api: ApiServer, sandbox: SandboxClient) -> bool:
    """Without expiry, and with the languages that are tested after the start."""
    state = await sandbox.fetch_state()
    info = sandbox_info("w", "here", state, "")
    await api.store.put(COLLECTION, info.worker, msgspec.json.encode(info))
    return True
