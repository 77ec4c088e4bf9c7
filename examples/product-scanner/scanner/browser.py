"""One headless Chromium per worker process, started when the first page needs it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib.util
import os
import shutil
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from scanner.sites import BROWSER, SITES

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page, Playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
RENDER = "SCANNER_RENDER"  # the sites whose pages are rendered, separated by commas; not set: all of the class browser
# As root in a container the sandbox of Chromium does not start, and /dev/shm is small.
ARGUMENTS = ("--no-sandbox", "--disable-dev-shm-usage")


@functools.cache
def program() -> str | None:
    """The browser to use, or None: it is not installed, or the package that drives it is not."""
    if importlib.util.find_spec("playwright") is None:
        return None
    return next(filter(None, map(shutil.which, NAMES)), None)


def renders(site: str) -> bool:
    """Whether the pages of this site are rendered, not only fetched."""
    chosen = os.environ.get(RENDER)
    return SITES[site] == BROWSER and program() is not None and (chosen is None or site in chosen.split(","))


class ProcessBrowser:
    """The browser of this process. It ends with the process; one that crashed is replaced."""

    def __init__(self) -> None:
        self._browser: Browser | None = None
        self._starting = asyncio.Lock()
        self._idle: list[Page] = []
        self._playwright: Playwright | None = None

    @contextlib.asynccontextmanager
    async def page(self, visitor: str) -> AsyncIterator[Page]:
        """A page for one address. It is used again: opening one takes three times as long as loading one."""
        browser = await self._started()
        opened = self._idle.pop() if self._idle else await browser.new_page()
        try:
            await opened.set_extra_http_headers({"User-Agent": visitor})
            yield opened
        except BaseException:
            await opened.close()
            raise
        self._idle.append(opened)

    async def _started(self) -> Browser:
        async with self._starting:
            if self._browser is None or not self._browser.is_connected():
                from playwright.async_api import async_playwright  # noqa: PLC0415  # only where a browser is used

                self._playwright = self._playwright or await async_playwright().start()
                self._browser = await self._playwright.chromium.launch(executable_path=program(), args=ARGUMENTS)
                self._idle.clear()
            return self._browser
