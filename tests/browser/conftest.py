"""A browser and a world of jobs for each module of tests: both take longer to start than most tests run."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio
from playwright.async_api import Browser
from tests.browser.dashboard import DashboardPage, World, dashboard_world
from tests.browser.support import launched


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with launched() as browser:
        yield browser


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[World]:
    async with dashboard_world() as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shown(browser: Browser, world: World) -> AsyncIterator[DashboardPage]:
    """A page of an administrator. Each test opens the address that it needs."""
    async with world.page(browser) as page:
        yield page
