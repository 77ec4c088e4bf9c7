"""What comes between: a session that ends, double clicks, stale tabs, the back button, and a server that restarts."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect
from tests.browser.dashboard import DashboardPage, World, dashboard_world, declare
from tests.server.support import ApiServer, serving

from jobyard import Jobyard
from jobyard.app.declarations import job_factory
from jobyard.domain.job import State
from jobyard.server.routes.table import ALL_ROUTES

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_number_that_could_not_be_saved_stays_in_its_field(browser: Browser) -> None:
    async with dashboard_world(works=False) as world, world.page(browser) as shown:
        page = shown.page
        await world.yard.enqueue("send_mail", {})
        await shown.go("queues/mail", "mail")
        await page.get_by_role("button", name=re.compile("^Running: ")).click()
        field = page.get_by_label("Running", exact=True)
        await field.fill("9")
        await page.context.clear_cookies()
        await field.press("Enter")
        dialog = page.get_by_role("dialog")
        await expect(dialog).to_contain_text("Your session is over")
        await page.keyboard.press("Escape")
        await page.keyboard.press("Escape")  # browsers close most dialogs now
        await expect(dialog.locator("#token")).to_be_visible()
        await dialog.locator("#token").fill(await world.api.token("operator"))
        await dialog.locator("#token").press("Enter")
        await expect(dialog).to_have_count(0)
        await expect(field).to_have_value("9")
        await field.press("Enter")
        await expect(page.get_by_role("button", name=re.compile("^Running: 9"))).to_be_visible()
        shown.forget_errors(401, "/v1/")
        [queue] = [each for each in await world.yard.queues() if each.name == "mail"]
        assert queue.settings.max_running == 9


async def test_a_double_click_acts_once(shown: DashboardPage, world: World) -> None:
    page = shown.page
    job_id = (await world.yard.enqueue("send_mail", {}, queue="idle")).id
    await world.yard.cancel(job_id)
    await shown.go(f"jobs/{job_id}", "send_mail")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if request.method == "POST" else None)
    await page.get_by_role("button", name="Retry").dblclick()
    await expect(page.locator(".state.large")).to_have_text("Pending")
    assert [each.rpartition("/")[-1] for each in asked] == ["retry"]


async def test_a_dialog_of_a_stale_tab_stays_open_and_says_why(shown: DashboardPage, world: World) -> None:
    page = shown.page
    job_id = (await world.yard.enqueue("send_mail", {}, queue="idle")).id
    await shown.go(f"jobs/{job_id}", "send_mail")
    await page.keyboard.press("p")  # the tab no longer learns what happens
    await expect(page.locator(".live-button")).to_have_text("Paused")
    await world.yard.delete(job_id)
    await page.get_by_role("button", name="Cancel…").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_role("textbox").fill("not needed")
    await dialog.get_by_role("button", name="Cancel the job").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("not found")
    await expect(dialog.get_by_role("textbox")).to_have_value("not needed")
    await dialog.get_by_role("button", name="Cancel", exact=True).click()
    # On another page: there is no stream of a deleted job, and its error could come at any later time.
    await shown.go("queues", "Queues")
    await page.keyboard.press("p")
    await expect(page.locator(".live-button.live")).to_be_visible()
    shown.forget_errors(404, job_id)


async def test_the_back_button_closes_a_dialog_of_the_page_that_is_left(shown: DashboardPage, world: World) -> None:
    page = shown.page
    job_id = (await world.yard.enqueue("send_mail", {}, queue="idle")).id
    await shown.go("jobs?queue=idle", "Jobs")
    await page.locator(f"tr[data-id='{job_id}'] a").first.click()
    await expect(page.locator("h1")).to_contain_text("send_mail")
    await page.get_by_role("button", name="Cancel…").click()
    await expect(page.get_by_role("dialog")).to_be_visible()
    await page.go_back()
    await expect(page.locator("h1")).to_have_text("Jobs")
    await expect(page).to_have_url(re.compile("queue=idle"))
    await expect(page.get_by_role("dialog")).to_have_count(0)
    assert job_id in await world.ids("send_mail", State.PENDING)


async def test_a_second_tab_shows_what_the_first_one_changes(shown: DashboardPage) -> None:
    other = await shown.page.context.new_page()
    await other.goto(f"{shown.url}/#/queues/mail")
    await expect(other.locator(".page-state")).not_to_have_text("Paused")
    await shown.go("queues/mail", "mail")
    for button, state in (("Pause", "Paused"), ("Resume", "")):
        await shown.page.locator("main").get_by_role("button", name=button).first.click()
        if state:
            await expect(other.locator(".page-state")).to_have_text(state)
        else:
            await expect(other.locator(".page-state")).not_to_have_text("Paused")
    await other.close()


@asynccontextmanager
async def server_on(store: str) -> AsyncIterator[World]:
    yard, release = Jobyard(store, name="shop"), asyncio.Event()
    declare(yard, release)
    async with yard:
        api = ApiServer(yard.store, ALL_ROUTES, job_factory=job_factory(yard, has_app=True))
        async with serving(api.app) as url:
            yield World(yard, api, url, release)
            api.dependencies.draining.set()


async def test_charts_show_what_was_counted_before_a_restart(browser: Browser, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'jobs.db'}"
    async with server_on(store) as world, world.yard.worker(concurrency=2, queues=["mail"], shutdown_timeout=0.1):
        for _ in range(3):
            await world.yard.enqueue("send_mail", {})
        await world.wait_for("send_mail", State.COMPLETED, 3)
    async with server_on(store) as world, world.page(browser) as shown:
        await shown.go("", "Overview")
        chart = shown.page.locator(".chart").first
        await chart.get_by_text("Show as table").click()
        cells = chart.locator("tbody td:nth-child(2)")
        await expect(cells.filter(has_text=re.compile("[1-9]")).first).to_be_visible()
