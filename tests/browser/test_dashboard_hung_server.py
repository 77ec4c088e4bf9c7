"""A server that hangs without closing a connection: the dashboard says so, and comes back by itself."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect
from tests.browser.dashboard import NOTE_MESSAGES, PATIENCE_MS, DashboardPage
from tests.support import ROOT, eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

PAGE_MODULE = "**/assets/*/pages/*.js"


class ServerProcess:
    """A server without tokens in a process of its own."""

    def __init__(self, process: Process, url: str) -> None:
        self.process = process
        self.url = url

    def hang(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)


@asynccontextmanager
async def server_process(folder: Path) -> AsyncIterator[ServerProcess]:
    arguments = ("-m", "tests.server.killable_server", f"sqlite:///{folder / 'jobs.db'}", "0")
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, cwd=ROOT, stdout=PIPE)
    assert process.stdout is not None
    try:
        yield ServerProcess(process, (await process.stdout.readline()).decode().strip())
    finally:
        process.kill()
        await process.wait()


@asynccontextmanager
async def opened(browser: Browser, server: ServerProcess) -> AsyncIterator[DashboardPage]:
    context = await browser.new_context()
    shown = DashboardPage(await context.new_page(), server.url)
    await shown.page.add_init_script(NOTE_MESSAGES)
    try:
        yield shown
    finally:
        await context.close()


async def wait_for_loss(page: Page) -> None:
    await expect(page.locator(".banner", has_text="Connection lost")).to_contain_text(
        re.compile(r"Connection lost .* ago\. Numbers are from \d")
    )
    await expect(page.locator(".live-button")).to_have_text("Offline")


async def test_hung_server_is_noticed_by_its_silence(browser: Browser, tmp_path: Path) -> None:
    async with server_process(tmp_path) as server, opened(browser, server) as shown:
        await shown.page.goto(f"{server.url}/#/queues")
        await expect(shown.page.locator("h1")).to_have_text("Queues")
        await expect(shown.page.locator(".live-button.live")).to_be_visible()
        server.hang()
        await wait_for_loss(shown.page)
        server.go_on()
        await shown.wait_for_message("Live again")
        await expect(shown.page.locator(".live-button")).to_have_text("Live")


async def test_request_to_a_hung_server_ends_and_says_so(browser: Browser, tmp_path: Path) -> None:
    async with server_process(tmp_path) as server, opened(browser, server) as shown:
        await shown.page.goto(f"{server.url}/#/jobs")
        await expect(shown.page.locator("h1")).to_have_text("Jobs")
        await expect(shown.page.locator(".live-button.live")).to_be_visible()
        await shown.page.keyboard.press("p")  # paused: no stream tells of the loss
        server.hang()
        await shown.page.get_by_role("link", name="Queues").click()
        problem = shown.page.locator(".banner.problem")
        await expect(problem).to_contain_text("It has not answered within", timeout=2 * PATIENCE_MS)
        server.go_on()
        await problem.get_by_role("button", name="Try again").click()
        await expect(shown.page.locator("main .card").first).to_be_visible()


async def test_page_first_opened_while_the_server_is_away_opens_later(browser: Browser, tmp_path: Path) -> None:
    async with server_process(tmp_path) as server, opened(browser, server) as shown:
        page = shown.page
        # Only what was fetched before: the scripts of the other pages fail, as when the server is down.
        await page.route(
            PAGE_MODULE, lambda route: route.continue_() if "jobs.js" in route.request.url else route.abort()
        )
        await page.goto(f"{server.url}/#/jobs")
        await expect(page.locator(".live-button.live")).to_be_visible()
        server.hang()
        await page.get_by_role("link", name="Queues").click()
        await expect(page.locator(".banner.problem")).to_contain_text("The page could not be loaded")
        await wait_for_loss(page)
        await page.unroute(PAGE_MODULE)
        server.go_on()
        await expect(page.locator("main .card").first).to_be_visible()
        await expect(page.locator(".banner.problem")).to_have_count(0)


async def test_commands_name_the_file_of_the_store(browser: Browser, tmp_path: Path) -> None:
    async with server_process(tmp_path) as server, opened(browser, server) as shown:
        await shown.page.goto(f"{server.url}/#/workers")
        command = f"jobyard worker --store sqlite:///{tmp_path / 'jobs.db'}"
        await expect(shown.page.locator(".command code")).to_have_text(command)


async def test_every_page_opens_while_the_server_is_away(browser: Browser, tmp_path: Path) -> None:
    """Their scripts are fetched in advance; what they show is not."""
    async with server_process(tmp_path) as server, opened(browser, server) as shown:
        fetched: set[str] = set()
        shown.page.on("requestfinished", lambda request: fetched.add(request.url.rsplit("/", 1)[-1]))
        await shown.page.goto(f"{server.url}/")
        pages = {path.name for path in (ROOT / "src/jobyard/dashboard/static/pages").glob("*.js")}
        await eventually(lambda: pages <= fetched)
