"""A server process that tests can kill: `python -m tests.server.killable_server STORE PORT [before|after]`."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, cast

import uvicorn

from jobyard.config.store_factory import make_store
from jobyard.domain.job import NewJob
from jobyard.operations.job_factory import JobFactory
from jobyard.ports.job_store import Inserted
from jobyard.ports.store import Store
from jobyard.server.app import create_app
from jobyard.server.dependencies import Dependencies, OpenAccess
from jobyard.server.http_protocol import ConnectionLimits, uvicorn_options
from jobyard.server.middleware import SecurityMiddleware
from jobyard.server.routes.table import ALL_ROUTES
from jobyard.server.server import listen, url_of

PR_SET_PDEATHSIG = 1


class Deadly:
    """A store that kills the process `before` or `after` its first insert."""

    def __init__(self, store: Store, moment: str) -> None:
        self._store = store
        self._moment = moment

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def insert(self, jobs: Sequence[NewJob], transaction: Any = None) -> list[Inserted]:
        if self._moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        response = await self._store.insert(jobs, transaction)
        if self._moment == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return response


async def serve(url: str, port: int, moment: str) -> None:
    store = make_store(url)
    await store.open()
    dependencies = Dependencies(cast(Store, Deadly(store, moment)) if moment else store, JobFactory(), OpenAccess())
    options = uvicorn_options(ConnectionLimits())
    server = uvicorn.Server(
        uvicorn.Config(SecurityMiddleware(create_app(dependencies, ALL_ROUTES)), loop="none", **options)
    )
    listener = listen("127.0.0.1", port)
    print(url_of(listener), flush=True)
    await server.serve([listener])
    await store.close()


if __name__ == "__main__":
    if sys.platform == "linux":
        # The server must not outlive tests that are killed.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    asyncio.run(serve(sys.argv[1], int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else ""))
