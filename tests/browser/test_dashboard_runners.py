"""The Runners page with a manager, a fake GitHub and a fake cluster: limits, reasons, runners and timelines."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect
from tests.browser.dashboard import World, dashboard_world
from tests.browser.runner_site import DashboardRunners, dashboard_runners
from tests.support import eventually

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]
PATIENCE = 60.0
HEIGHT = "document.documentElement.scrollHeight"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[World]:
    async with dashboard_world(works=False) as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def runners(world: World) -> AsyncIterator[DashboardRunners]:
    async with dashboard_runners(world.api, world.url, ("acme", "globex"), max_per_org=2, max_total=20) as made:
        made.queue("acme", "build", "test", "lint", "deploy")
        made.queue("globex", "release")
        made.queue("globex", "train", labels=("self-hosted", "gpu"))
        await eventually(lambda: len(made.running("acme")) == 2 and len(made.running("globex")) == 1, PATIENCE)
        yield made


async def test_organizations_waiting_jobs_runners_and_a_timeline(
    browser: Browser, world: World, runners: DashboardRunners
) -> None:
    async with world.page(browser, "operator") as shown:
        page = shown.page
        await shown.go("runners", "Runners")
        organizations = page.get_by_role("table", name="Organizations").locator("tbody tr")
        acme = organizations.filter(has_text="acme")
        await expect(acme).to_contain_text("2 of 2")
        await expect(acme).to_contain_text("2 busy")
        await expect(acme).to_contain_text("2 at the limit of the organization")
        await expect(organizations.filter(has_text="globex")).to_contain_text("1 of 2")
        jobs = page.get_by_role("table", name="GitHub jobs").locator("tbody tr")
        await expect(jobs.filter(has_text="in progress")).to_have_count(3)
        await expect(jobs.filter(has_text="deploy")).to_contain_text("2 of 2 runners of acme run")
        await expect(page.locator(".numbers")).to_contain_text("Unserved1")
        pods = page.locator("section", has=page.get_by_role("heading", name="3 runners"))
        await expect(pods).to_contain_text("3 busy")
        names = pods.locator("li .clipped")
        await expect(names).to_have_count(3)
        for each in await names.all():
            assert await each.get_attribute("title") == await each.inner_text()
            assert await each.evaluate("(name) => name.getBoundingClientRect().height < 30"), "it wraps"
        entry = page.locator(".sidebar .menu").get_by_role("link", name="Runners")
        await expect(entry).to_have_text("Runners3")
        await expect(entry).to_have_attribute("href", "#/runners")
        running = runners.running("acme")[0]
        await page.get_by_role("button", name=running.name, exact=True).click()
        dialog = page.get_by_role("dialog")
        for leg in ("received", "planned", "minted", "online", "in progress"):
            await expect(dialog).to_contain_text(leg)
        await dialog.get_by_role("button", name="Close").click()
        await acme.get_by_role("link", name="acme").click()
        await expect(page).to_have_url(re.compile("org=acme"))
        await expect(jobs).to_have_count(4)


async def test_limit_of_an_organization_is_edited_in_place_and_takes_effect(
    browser: Browser, world: World, runners: DashboardRunners
) -> None:
    async with world.page(browser, "operator") as shown:
        page = shown.page
        await shown.go("runners", "Runners")
        acme = page.get_by_role("table", name="Organizations").locator("tbody tr").filter(has_text="acme")
        await page.get_by_role("button", name=re.compile("^Limit of acme: 2")).click()
        await page.get_by_label("Limit of acme", exact=True).fill("3")
        await expect(acme).to_contain_text("was 2")
        await page.get_by_label("Limit of acme", exact=True).press("Enter")
        await expect(acme).to_contain_text("own limit")
        await expect(acme).to_contain_text("3 of 3")
        await eventually(lambda: len(runners.running("acme")) == 3, PATIENCE)
        await expect(acme).to_contain_text("3 busy")
        await page.get_by_role("button", name=re.compile("^Limit of acme: 3")).click()
        await page.get_by_label("Limit of acme", exact=True).fill("")
        await page.get_by_label("Limit of acme", exact=True).press("Enter")
        await expect(acme).to_contain_text("as for all")
        await expect(acme).to_contain_text("3 of 2")
    async with world.page(browser, "viewer") as shown:
        await shown.go("runners", "Runners")
        await expect(shown.page.get_by_role("button", name=re.compile("Limit of"))).to_have_count(0)


async def test_a_phone_shows_the_first_rows_of_each_list_until_all_are_wanted(
    browser: Browser, world: World, runners: DashboardRunners
) -> None:
    runners.queue("acme", *(f"shard {number}" for number in range(20)))
    size = {"width": 400, "height": 860}
    async with world.page(browser, "viewer", viewport=size) as shown:
        page = shown.page
        await shown.go("runners", "Runners")
        jobs = page.get_by_role("table", name="GitHub jobs").locator("tbody tr")
        show_all = page.get_by_role("button", name=re.compile(r"^Show all \d+$"))
        await expect(show_all).to_have_count(1)  # the other lists are short
        await expect(jobs.nth(20)).to_be_attached()
        await expect(jobs.locator("visible=true")).to_have_count(8)
        short = await page.evaluate(HEIGHT)
        await show_all.click()
        await expect(jobs.locator("visible=true")).to_have_count(await jobs.count())
        await expect(show_all).to_have_count(0)
        assert await page.evaluate(HEIGHT) > short > size["height"]
        assert await page.evaluate("document.documentElement.scrollWidth") == size["width"]
        await page.set_viewport_size({"width": 1280, "height": 800})
        await shown.page.reload()
        await expect(jobs.nth(20)).to_be_visible()
        await expect(show_all.locator("visible=true")).to_have_count(0)
