"""Behind a proxy with a path prefix and another origin, and with TLS of its own."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urljoin

import httpx2 as httpx
import pytest
from tests.server.support import api_server
from tests.servers import Certificate

from jobyard.config.sections import ServerSection
from jobyard.errors import ConfigurationError
from jobyard.operations.job_factory import JobFactory
from jobyard.operations.tokens import Tokens
from jobyard.ports.clock import SystemClock
from jobyard.server.bootstrap import bootstrap_access
from jobyard.server.middleware import SecurityMiddleware
from jobyard.server.server import Server, listen, require_certificate
from jobyard.stores.memory import MemoryStore

PUBLIC = "https://jobs.example.com"
SETTINGS = ServerSection(root_path="/yard", public_origin=PUBLIC)


@asynccontextmanager
async def proxied(prefix: str) -> AsyncIterator[tuple[httpx.AsyncClient, str]]:
    """A client of a proxy that changes the Host header and the prefix; and an admin token."""
    async with api_server(SETTINGS) as api:
        app = SecurityMiddleware(api.app, None, SETTINGS.root_path, SETTINGS.public_origin)
        base = f"http://10.0.0.7:8080{prefix}"
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=base, timeout=60) as client:
            yield client, await api.token()


@pytest.mark.parametrize("prefix", ["", "/yard"], ids=["removed by the proxy", "passed on"])
async def test_links_lead_through_the_proxy(prefix: str) -> None:
    async with proxied(prefix) as (client, token):
        client.headers["Authorization"] = f"Bearer {token}"
        made = await client.post("/v1/jobs", json={"kind": "a", "queue": "작업"})
        assert made.headers["Location"] == f"/yard/v1/jobs/{made.json()['id']}"
        await client.post("/v1/jobs", json={"kind": "a", "queue": "작업"})
        page = await client.get("/v1/jobs", params={"page_size": 1, "queue": "작업"})
        assert page.headers["Link"].startswith("</yard/v1/jobs?")
        document = (await client.get("/openapi.json")).json()
        assert document["servers"][0]["url"] == f"{PUBLIC}/yard"
        assert (await client.get("/v1/nothing")).json()["instance"] == "/v1/nothing"


@pytest.mark.parametrize("prefix", ["", "/yard"], ids=["removed by the proxy", "passed on"])
async def test_login_and_pages_work_through_the_proxy(prefix: str) -> None:
    async with proxied(prefix) as (client, token):
        for name in ("login", "docs"):
            page = await client.get(f"/{name}")
            links = set(re.findall(r'(?:src|href|action)="([^"]+)"', page.text)) - {"data:,"}
            assert links
            for link in links:
                assert urljoin(f"/yard/{name}", link).startswith("/yard/")
        same = {"Origin": PUBLIC, "Sec-Fetch-Site": "same-origin"}
        answer = await client.post("/login", data={"token": token}, headers=same)
        assert (answer.status_code, answer.headers["Location"]) == (303, "/yard/")
        assert answer.headers["Set-Cookie"].startswith("__Host-jobyard_session=")
        assert "Secure" in answer.headers["Set-Cookie"]
        other = {"Origin": "https://evil.example.com", "Sec-Fetch-Site": "cross-site"}
        assert (await client.post("/login", data={"token": token}, headers=other)).status_code == 403


async def test_paths_that_only_begin_like_the_prefix_are_not_found() -> None:
    async with proxied("") as (client, _):
        assert (await client.get("/yardstick/livez")).status_code == 404


async def test_server_speaks_tls(tmp_path: Path) -> None:
    certificate = Certificate(tmp_path)
    section = ServerSection(tls_cert=str(certificate.chain), tls_key=str(certificate.key))
    require_certificate(section)
    store = MemoryStore(SystemClock())
    await store.open()
    await Tokens(store).create("a", "viewer")
    with listen("127.0.0.1", 0) as listener:
        server = Server(store, JobFactory(), await bootstrap_access(store, listener, section, insecure=False), section)
        running = asyncio.ensure_future(server.run(listener))
        try:
            url = server.url(listener)
            assert url.startswith("https://127.0.0.1:")
            trusted = ssl.create_default_context(cafile=certificate.authority)
            async with httpx.AsyncClient(base_url=url, verify=trusted, timeout=60) as client:
                answer = await client.get("/livez")
            assert answer.status_code == 200
            assert "Strict-Transport-Security" in answer.headers
        finally:
            server.stop()
            await running
    await store.close()


def test_unusable_certificate_is_a_configuration_error(tmp_path: Path) -> None:
    (tmp_path / "x.pem").write_text("nothing")
    for section in (
        ServerSection(tls_cert=str(tmp_path / "x.pem")),
        ServerSection(tls_cert=str(tmp_path / "missing.pem")),
        ServerSection(tls_key="key.pem"),
    ):
        with pytest.raises(ConfigurationError):
            require_certificate(section)
