"""An API server on a memory store in this process, with its client."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx2 as httpx
import msgspec
import uvicorn
from starlette.applications import Starlette
from tests.servers import Certificate
from tests.story.sizes import SOAK
from tests.support import eventually

from jobyard.config.sections import ServerSection
from jobyard.operations.job_factory import JobFactory
from jobyard.operations.sandboxes import COLLECTION, SandboxInfo
from jobyard.operations.sessions import Sessions
from jobyard.operations.tokens import Tokens
from jobyard.ports.clock import SystemClock
from jobyard.ports.store import Store
from jobyard.sandbox.protocol import Language, Tier
from jobyard.server import job_counts
from jobyard.server.app import create_app
from jobyard.server.auth import TokenAuthenticator
from jobyard.server.dependencies import Authenticator, Dependencies
from jobyard.server.http_protocol import ConnectionLimits, UvicornServer, uvicorn_options
from jobyard.server.middleware import SecurityMiddleware
from jobyard.server.route import Routes
from jobyard.server.routes import dead_letters, jobs
from jobyard.server.routes.table import ALL_ROUTES
from jobyard.stores.memory import MemoryStore

HERE = "http://jobyard.test"
# On a busy machine a search of few jobs could use up its time and return a part of them. The soak measures the time.
if not SOAK:
    jobs.SEARCH_SECONDS = job_counts.SECONDS = dead_letters.GROUP_SECONDS = 3600.0


class ApiServer:
    """A store, its tokens and an application with some routes."""

    def __init__(
        self,
        store: Store,
        routes: Sequence[Routes],
        settings: ServerSection | None = None,
        authenticator: Authenticator | None = None,
        job_factory: JobFactory | None = None,
    ) -> None:
        self.store = store
        self.tokens = Tokens(store)
        self.authenticator: Authenticator = authenticator or TokenAuthenticator(
            self.tokens, Sessions(store, self.tokens), settings
        )
        self.dependencies = Dependencies(store, job_factory or JobFactory(), self.authenticator, settings)
        self.app: Starlette = create_app(self.dependencies, routes, self.dependencies.lifespan)

    async def token(self, role: str = "admin", **scope: Any) -> str:
        same = sum(info.role == role for info in await self.tokens.list())
        return (await self.tokens.create(f"a {role}" + f", number {same + 1}" * (same > 0), role, **scope))[1]

    @asynccontextmanager
    async def client(self, role: str | None = None, base: str = HERE, **scope: Any) -> AsyncIterator[httpx.AsyncClient]:
        headers = {"Authorization": f"Bearer {await self.token(role, **scope)}"} if role else {}
        transport = httpx.ASGITransport(self.app)
        async with httpx.AsyncClient(transport=transport, base_url=base, headers=headers, timeout=60) as client:
            yield client


async def announce_languages(store: Store, *names: str) -> None:
    """As a worker with a sandbox does, but without expiry: a test may be slow."""
    languages = tuple(Language(name=name, version="1.0") for name in names or ("python",))
    info = SandboxInfo(worker="w", tier=Tier.A, slots=2, languages=languages)
    await store.put(COLLECTION, info.worker, msgspec.json.encode(info))


@asynccontextmanager
async def serving(
    app: Any, limits: ConnectionLimits | None = None, certificate: Certificate | None = None
) -> AsyncIterator[str]:
    """A real server on a free port, with TLS if there is a certificate. Yields its URL."""
    options = uvicorn_options(limits or ConnectionLimits())
    if certificate is not None:
        options |= {"ssl_certfile": str(certificate.chain), "ssl_keyfile": str(certificate.key)}
    config = uvicorn.Config(SecurityMiddleware(app), host="127.0.0.1", port=0, loop="none", **options)
    server = UvicornServer(config)
    listener = socket.create_server(("127.0.0.1", 0))
    task = asyncio.ensure_future(server.serve([listener]))
    try:
        await eventually(lambda: server.started or task.done())
        yield f"{'http' if certificate is None else 'https'}://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task
        listener.close()


@asynccontextmanager
async def api_server(
    settings: ServerSection | None = None,
    routes: Sequence[Routes] = ALL_ROUTES,
    job_factory: JobFactory | None = None,
) -> AsyncIterator[ApiServer]:
    store = MemoryStore(SystemClock())
    await store.open()
    try:
        yield ApiServer(store, routes, settings, job_factory=job_factory)
    finally:
        await store.close()


async def submit_job(client: httpx.AsyncClient, kind: str = "mail", **given: Any) -> str:
    response = await client.post("/v1/jobs", json={"kind": kind, **given})
    assert response.status_code == 202, response.text
    return str(response.json()["id"])


async def ids(client: httpx.AsyncClient, path: str = "/v1/jobs", **params: Any) -> list[str]:
    """The ids of all pages of a list."""
    found: list[str] = []
    while True:
        response = await client.get(path, params=params)
        assert response.status_code == 200, response.text
        page = response.json()
        found += [job["id"] for job in page["items"]]
        if "next_page_token" not in page:
            return found
        params["page_token"] = page["next_page_token"]
