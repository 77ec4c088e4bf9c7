"""A browser page on a private server, which records console errors and requests to other hosts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from playwright.async_api import Browser, ConsoleMessage, Page, Request, async_playwright
from tests.server.support import ApiServer, api_server, serving
from tests.servers.absent import Absent, need
from tests.servers.fixtures import absent

# As root in a container the sandbox of the browser does not start.
ARGUMENTS = ("--no-sandbox", "--disable-dev-shm-usage")
ERRORS = ("error", "warning")


class BrowserPage:
    """A page, its server, and what went wrong in it."""

    def __init__(self, page: Page, api: ApiServer, url: str) -> None:
        self.page = page
        self.api = api
        self.url = url
        self.errors: list[str] = []
        self.foreign_requests: list[str] = []
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", self._on_request)

    async def go(self, path: str) -> None:
        await self.page.goto(self.url + path)

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ERRORS:
            self.errors.append(message.text)

    def _on_request(self, request: Request) -> None:
        if not request.url.startswith((f"{self.url}/", "data:")):
            self.foreign_requests.append(request.url)


@asynccontextmanager
async def launched() -> AsyncIterator[Browser]:
    """A browser for many pages: it takes longer to start than most pages are open."""
    try:
        program = need("chromium")
    except Absent as error:
        absent(error)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        yield browser
        await browser.close()


@asynccontextmanager
async def browser_page(browser: Browser, **options: Any) -> AsyncIterator[BrowserPage]:
    """A page with cookies and storage of its own."""
    async with api_server() as api, serving(api.app) as url:
        page = await browser.new_page(**options)
        try:
            yield BrowserPage(page, api, url)
        finally:
            api.dependencies.draining.set()
            await page.close()
