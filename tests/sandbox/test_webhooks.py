"""Completion webhooks: signed, retried as jobs, and kept away from the operator's own network."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.sandbox.real_programs import Judge, judge
from tests.support import eventually

from jobyard.domain.job import Job, State
from jobyard.domain.retry import Delays
from jobyard.operations.webhooks import address, delivery, executor
from jobyard.operations.webhooks.signature import new_secret, signed_headers
from jobyard.ports.admin_store import Filter
from jobyard.sandbox.attacks.private_daemon import PrivateDaemon

SECRET = "whsec_" + base64.b64encode(b"k" * 24).decode()


class Receiver:
    """A receiver that answers with the given statuses, the last one repeatedly."""

    def __init__(self, *statuses: int) -> None:
        self._statuses = list(statuses)
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        headers = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if line)
        self.requests.append((headers, await reader.readexactly(int(headers["content-length"]))))
        status = self._statuses.pop(0) if len(self._statuses) > 1 else self._statuses[0]
        writer.write(f"HTTP/1.1 {status} X\r\nlocation: {self.url}\r\ncontent-length: 0\r\n\r\n".encode())
        writer.close()


@asynccontextmanager
async def receiving(*statuses: int) -> AsyncIterator[Receiver]:
    receiver = Receiver(*statuses)
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    receiver.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook?x=1"
    async with server:
        yield receiver


@pytest.fixture
async def here(daemon: PrivateDaemon, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Judge]:
    monkeypatch.setattr(executor, "DELAYS", Delays((0.01,)))
    async with judge(daemon, webhooks_to_private=True) as made:
        yield made


async def webhook_jobs(here: Judge, state: State | None = None) -> list[Job]:
    page = await here.api.store.find(Filter(kind=executor.KIND))
    return [job for job in page.jobs if state is None or job.state is state]


async def submitted(here: Judge, url: str, source: str = "print(1)") -> str:
    response = await here.submit(source, expected_output="1", webhook={"url": url, "secret": SECRET})
    assert response.status_code == 200, response.text
    return str(response.json()["job_id"])


def verified(headers: dict[str, str], body: bytes) -> dict[str, Any]:
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    digest = base64.b64encode(hmac.new(b"k" * 24, signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{digest}"
    found: dict[str, Any] = json.loads(body)
    return found


async def test_result_is_delivered_and_signed(here: Judge) -> None:
    async with receiving(204) as receiver:
        job_id = await submitted(here, receiver.url)
        await eventually(lambda: webhook_jobs(here, State.COMPLETED))
    [(headers, body)] = receiver.requests
    message = verified(headers, body)
    assert (message["type"], message["data"]["job_id"]) == ("execution.finished", job_id)
    assert (message["data"]["status"], message["data"]["result"]["verdict"]) == ("COMPLETED", "ACCEPTED")


async def test_delivery_is_retried_with_the_same_id(here: Judge) -> None:
    async with receiving(500, 302, 200) as receiver:
        await submitted(here, receiver.url)
        await eventually(lambda: webhook_jobs(here, State.COMPLETED))
    ids = {headers["webhook-id"] for headers, _ in receiver.requests}
    assert (len(receiver.requests), len(ids)) == (3, 1)


async def test_receiver_that_is_gone_is_not_called_again(here: Judge) -> None:
    async with receiving(410) as receiver:
        await submitted(here, receiver.url)
        await eventually(lambda: webhook_jobs(here, State.FAILED))
    assert len(receiver.requests) == 1


async def test_url_and_secret_are_private(here: Judge) -> None:
    async with receiving(200) as receiver:
        await submitted(here, receiver.url)
        await eventually(lambda: webhook_jobs(here, State.COMPLETED))
        async with here.api.client("admin") as admin:
            [job] = await webhook_jobs(here)
            shown = (await admin.get(f"/v1/jobs/{job.id}")).text
    assert "hook" not in shown.replace("webhook", "") and SECRET not in shown


# Addresses

FORBIDDEN = [
    "http://127.0.0.1/", "http://localhost/", "http://x.localhost:80/", "http://10.0.0.1/", "http://192.168.1.1/", "http://172.16.0.1/",
    "http://169.254.169.254/latest/meta-data/", "http://0.0.0.0/", "http://[::1]/", "http://[::ffff:127.0.0.1]/",
    "http://[fe80::1]/", "http://[fd00::1]/", "http://[64:ff9b::7f00:1]/", "http://[2002:7f00:1::]/", "http://224.0.0.1/",
    "http://100.64.0.1/", "http://255.255.255.255/", "http://2130706433/", "http://127.1/", "http://0/",
    "http://0x7f000001/", "http://0x7f.1/", "http://0xA9FEA9FE/", "http://0300.0250.0.1/", "http://localhost./", "http://10.0.0.1./",
    "ftp://example.com/", "file:///etc/passwd", "gopher://example.com/", "http://", "example.com", "http://user:secret@example.com/",
    "http://example.com/\r\nX: y", "http://example.com/a b", "http://example.com:99999/",
]  # fmt: skip


@pytest.mark.parametrize("url", FORBIDDEN)
async def test_forbidden_addresses_are_rejected_with_the_request(daemon: PrivateDaemon, url: str) -> None:
    with pytest.raises(address.ForbiddenAddress):
        address.check_url(url, allow_private=False)


async def test_api_rejects_a_private_address_and_a_bad_secret(daemon: PrivateDaemon) -> None:
    async with judge(daemon) as here:
        for webhook, at in (
            ({"url": "http://169.254.169.254/", "secret": SECRET}, "/webhook/url"),
            ({"url": "https://example.com/"}, "/webhook/secret"),
            ({"url": "https://example.com/", "secret": "whsec_short"}, "/webhook/secret"),
        ):
            response = await here.submit("print(1)", webhook=webhook)
            assert (response.status_code, response.json()["errors"][0]["pointer"]) == (422, at)


async def test_name_that_resolves_to_a_private_address_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if only one of its addresses is private; and the checked address is the one that is called."""
    async with receiving(200) as receiver:
        port = int(receiver.url.split(":")[2].split("/")[0])
        target = address.parse(f"http://public.example:{port}/")
        for found in (["127.0.0.1"], ["1.1.1.1", "127.0.0.1"], ["::ffff:127.0.0.1"]):
            monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolving(found), raising=False)
            with pytest.raises(address.ForbiddenAddress):
                await delivery.post(target, signed_headers(new_secret(), "i", 1, b"{}"), b"{}")
    assert receiver.requests == []


def resolving(addresses: list[str]) -> Any:
    async def resolve(host: str, port: int, **rest: Any) -> Any:
        return [(2, 1, 6, "", (each, port)) for each in addresses]

    return resolve


async def test_redirect_is_not_followed() -> None:
    async with receiving(302) as receiver:
        target = address.parse(receiver.url)
        assert await delivery.post(target, {}, b"{}", allow_private=True) == 302
    assert len(receiver.requests) == 1


async def test_receiver_that_sends_no_end_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                writer.write(b"x" * 4096)
                await writer.drain()
        except OSError:
            writer.close()

    server = await asyncio.start_server(endless, "127.0.0.1", 0)
    async with server:
        target = address.parse(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
        with pytest.raises(delivery.DeliveryFailed):
            await delivery.post(target, {}, b"{}", allow_private=True)
