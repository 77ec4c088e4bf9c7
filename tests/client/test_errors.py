"""Error responses are raised as the class of their code; the token is never shown."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path
from typing import Any

import pytest
from tests.client.support import Site, make_yard
from tests.server.support import ApiServer, serving

from jobyard import errors
from jobyard.client import Client, job_request
from jobyard.client.errors import CLASSES, error_of
from jobyard.client.transport import pause
from jobyard.config.sections import ServerSection
from jobyard.errors import (
    ChildFailed,
    ConfigurationError,
    Forbidden,
    HandlerError,
    InvalidWorkflow,
    JobyardError,
    NotFound,
    PayloadTooLarge,
    QueueFull,
    ServerUnavailable,
    StepFailed,
    StoreUnavailable,
    TooManyRequests,
    Unauthorized,
)
from jobyard.server.problems import from_error
from jobyard.server.routes.table import ALL_ROUTES

EVERY = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, JobyardError)]
# Raised in a worker, or where a file is read, with facts of their own: no server sends them.
NOT_SENT = (ChildFailed, HandlerError, InvalidWorkflow, StepFailed)
SENT = [kind for kind in EVERY if kind not in NOT_SENT]


@pytest.mark.parametrize("kind", SENT, ids=lambda kind: kind.code)
def test_every_error_is_raised_as_its_own_class(kind: type[JobyardError]) -> None:
    response = from_error(kind("what happened, why, what to do"))
    found = error_of(response.status_code, bytes(response.body), "http://here")
    assert type(found) is kind
    assert str(found) == "what happened, why, what to do"


def test_codes_are_unique() -> None:
    assert len({kind.code for kind in EVERY}) == len(EVERY)
    assert set(CLASSES) >= {kind.code for kind in EVERY}


async def test_unauthorized_and_forbidden(here: Site) -> None:
    async with Client(here.url) as anonymous:
        with pytest.raises(Unauthorized, match="JOBYARD_TOKEN"):
            await anonymous.me()
    async with Client(here.url, "jy_000000000000_wrongwrongwrongwrongwrong") as wrong:
        with pytest.raises(Unauthorized, match="JOBYARD_TOKEN"):
            await wrong.me()
    async with here.client("viewer") as viewer:
        with pytest.raises(Forbidden, match="viewer"):
            await viewer.enqueue("send")
    async with here.client("operator", queues=["mail"]) as confined:
        with pytest.raises(Forbidden):
            await confined.enqueue("send", queue="other")


async def test_invalid_input(here: Site, client: Client) -> None:
    await client.configure("small", max_waiting=1)
    await client.enqueue("send", queue="small")
    async with Client(here.url, await here.token(), patience=600) as patient, asyncio.timeout(60):
        with pytest.raises(QueueFull):  # at once, as in this process: not after the client's patience
            await patient.enqueue("send", queue="small")
    with pytest.raises(PayloadTooLarge):
        await client.enqueue("send", {"x": "y" * (3 << 20)})
    [refused] = await client.enqueue_many([job_request("send", {"x": "y" * (1 << 20)})])
    assert isinstance(refused, PayloadTooLarge)
    async with here.client(url=f"{here.url}/elsewhere") as lost:
        with pytest.raises(NotFound):
            await lost.me()


async def test_rate_limited_requests_are_retried(tmp_path: Path) -> None:
    async with make_yard(tmp_path) as yard:
        api = ApiServer(yard.store, ALL_ROUTES, ServerSection(requests_per_second=20, request_burst=2))
        async with serving(api.app) as url:
            token = await api.token()
            async with Client(url, token, patience=20) as client:
                await client.configure("mail")
                for _ in range(4):  # beyond what it may at once
                    await client.pause("mail")
            async with Client(url, token, patience=0) as hasty:
                with pytest.raises(TooManyRequests):
                    for _ in range(30):
                        await hasty.me()


class Scripted:
    """A server that responds with these statuses in turn, with Retry-After of one second."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.asked_at: list[float] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        self.asked_at.append(time.monotonic())
        headers = [(b"content-type", b"application/json"), (b"retry-after", b"1")]
        await send({"type": "http.response.start", "status": self.statuses.pop(0), "headers": headers})
        await send({"type": "http.response.body", "body": b'{"items": [], "code": "x"}'})


@pytest.mark.parametrize("status", [429, 503])
async def test_retry_after_is_respected(status: int) -> None:
    server = Scripted(status, 200)
    async with serving(server) as url, Client(url, patience=10) as client:
        assert await client.queues() == []
    first, second = server.asked_at
    assert second - first >= 1


async def test_retries_end_after_patience() -> None:
    server = Scripted(503, 200)
    async with serving(server) as url, Client(url, patience=0.5) as client:
        with pytest.raises(StoreUnavailable):
            await client.queues()
    assert len(server.asked_at) == 1


def test_backoff_grows_with_jitter() -> None:
    for tries, longest in ((1, 0.1), (2, 0.2), (4, 0.8), (100, 5.0)):
        found = {pause(tries) for _ in range(100)}
        assert len(found) > 1
        assert longest / 2 <= min(found) <= max(found) <= longest


async def test_the_token_is_never_shown(
    here: Site, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = await here.token()
    secret = token.split("_", 2)[2]
    monkeypatch.setenv("JOBYARD_TOKEN", token)
    with caplog.at_level(logging.DEBUG):
        async with Client(here.url) as client:
            assert (await client.me()).role == "admin"
            shown = repr(client) + repr(client._transport) + repr(vars(client))
            with pytest.raises(JobyardError) as raised:
                await client.get("nothing")
    assert caplog.text
    assert secret not in shown + caplog.text + repr(raised.value)


async def test_the_token_from_a_file(here: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text(f"{await here.token('viewer')}\n")
    monkeypatch.setenv("JOBYARD_TOKEN_FILE", str(tmp_path / "token"))
    async with Client(here.url) as client:
        assert (await client.me()).role == "viewer"


@pytest.mark.parametrize(
    "url",
    ["localhost:8080", "ftp://x", "http://", "http://user:hush@here", "http://here:99999", "http://here/?token=x"],
)
def test_invalid_urls(url: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        Client(url)
    assert "hush" not in str(raised.value)


def test_invalid_tokens() -> None:
    with pytest.raises(ConfigurationError) as raised:
        Client("http://here", "hush\nX: y")
    assert "hush" not in str(raised.value)


async def test_another_kind_of_server() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/html")]})
        await send({"type": "http.response.body", "body": b"<html>"})

    async with serving(app) as url, Client(url) as client:
        with pytest.raises(ServerUnavailable):
            await client.me()
