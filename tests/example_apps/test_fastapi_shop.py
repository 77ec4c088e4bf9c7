"""examples/fastapi-shop: orders and jobs in one transaction, a job as a response, and progress in a page."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
import uvicorn
from playwright.async_api import expect
from tests.browser.support import launched
from tests.house.repository import ROOT
from tests.support import eventually

from jobyard.server.http_protocol import UvicornServer

pytestmark = pytest.mark.timeout(300)

CUPS = {"product": "cup", "count": 3, "price": "2.50"}


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.chdir(tmp_path)
    spec = importlib.util.spec_from_file_location("fastapi_shop", ROOT / "examples/fastapi-shop/shop.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "fastapi_shop", module)
    spec.loader.exec_module(module)
    yield module
    module.engine.dispose()


@pytest.fixture
async def url(shop: Any) -> AsyncIterator[str]:
    """The application on a free port, as uvicorn runs it."""
    server = UvicornServer(uvicorn.Config(shop.app, log_level="warning", loop="none"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        task = asyncio.ensure_future(server.serve([listener]))
        await eventually(lambda: server.started or task.done())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        await task


async def test_an_order_its_job_and_its_progress(shop: Any, url: str) -> None:
    async with httpx.AsyncClient(base_url=url, timeout=150) as client:
        taken = (await client.post("/orders", json=CUPS)).json()
        waiting = (await client.get(f"/jobs/{taken['job']}")).json()
        assert (waiting["state"], waiting["payload"]) == ("PENDING", {"order": taken["order"], "form": CUPS})
        assert waiting["created_at"].endswith("Z")
        async with shop.yard.worker():
            lines = (await client.get(f"/jobs/{taken['job']}/events")).text.split("\n\n")
        last = json.loads(lines[-2].removeprefix("data: "))
        assert (last["state"], last["percent"]) == ("COMPLETED", 100)
        assert last["result"] == {"order": taken["order"], "total": "7.50"}
        typed = await shop.pack.job_handle(taken["job"]).result()
        assert typed == shop.Receipt(order=taken["order"], total="7.50")


async def test_a_rollback_takes_the_job_along(shop: Any, url: str) -> None:
    async with httpx.AsyncClient(base_url=url, timeout=150) as client:
        assert (await client.post("/orders", json=CUPS | {"product": "unicorn"})).status_code == 409
        assert (await client.post("/orders", json=CUPS | {"count": 0})).status_code == 422
        assert [job async for job in shop.yard.jobs()] == []
        assert (await client.get("/jobs/nothing")).status_code == 404
        taken = (await client.post("/orders", json=CUPS)).json()
        assert (await client.post(f"/jobs/{taken['job']}/cancel")).json()["state"] == "CANCELLED"
        assert (await client.post(f"/jobs/{taken['job']}/cancel")).status_code == 409


async def test_the_schema_has_the_fields_of_a_job(shop: Any) -> None:
    answer = shop.app.openapi()["paths"]["/jobs/{job_id}"]["get"]["responses"]["200"]["content"]["application/json"]
    assert {"id", "state", "payload", "result", "progress", "errors"} <= answer["schema"]["properties"].keys()
    assert answer["schema"]["properties"]["created_at"]["format"] == "date-time"


async def test_the_page_shows_the_progress(shop: Any, url: str) -> None:
    async with launched() as browser, shop.yard.worker():
        page = await browser.new_page()
        await page.goto(url)
        await page.get_by_role("button").click()
        await expect(page.locator("output")).to_have_text("done: 7.50", timeout=150_000)
        assert await page.locator("progress").get_attribute("value") == "100"
