"""A server of its own and a browser that looks at it; whatever the browser complains about is remembered."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from playwright.async_api import ConsoleMessage, Page, Request, async_playwright
from tests.server.support import ApiServer, api_server, serving
from tests.servers.absent import Absent, need
from tests.servers.fixtures import absent

# The tests may run as root in a container, where the browser's own sandbox does not start.
WORDS = ("--no-sandbox", "--disable-dev-shm-usage")
COMPLAINTS = ("error", "warning")


class Window:
    """A page, the server that it shows, and what went wrong in it."""

    def __init__(self, page: Page, api: ApiServer, url: str) -> None:
        self.page = page
        self.api = api
        self.url = url
        self.complaints: list[str] = []
        self.strangers: list[str] = []
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", self._see)

    async def go(self, path: str) -> None:
        await self.page.goto(self.url + path)

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in COMPLAINTS:
            self.complaints.append(message.text)

    def _see(self, request: Request) -> None:
        if not request.url.startswith((f"{self.url}/", "data:")):
            self.strangers.append(request.url)


@asynccontextmanager
async def window(**options: Any) -> AsyncIterator[Window]:
    try:
        program = need("chromium")
    except Absent as error:
        absent(error)
    async with api_server() as api, serving(api.app) as url, async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=WORDS)
        try:
            yield Window(await browser.new_page(**options), api, url)
        finally:
            api.dependencies.draining.set()
            await browser.close()
