"""Live updates: rows are patched in place, new ones wait, and a lost connection is shown and resumed."""

from __future__ import annotations

import asyncio
import contextlib
import re

import pytest
from playwright.async_api import Browser, Error, Route, expect
from tests.browser.dashboard import DashboardPage, World, dashboard_world
from tests.support import eventually

from jobyard.domain.job import State

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Marks an element, to see later whether it is still the same one.
MARK = "(element) => { element.dataset.mark = 'same'; }"
# The page may have come back by itself a moment before, and then has no button.
TRY_NOW = "() => document.querySelector('.banner button')?.click()"


async def test_states_and_progress_change_in_place_and_new_rows_wait(shown: DashboardPage, world: World) -> None:
    page = shown.page
    job_id = (await world.yard.enqueue("send_mail", {"to": "live"}, queue="idle")).id
    await shown.go("jobs?queue=idle", "Jobs")
    row = page.locator(f"tr[data-id='{job_id}']")
    await row.evaluate(MARK)
    await row.locator("input").click()
    await expect(row).to_contain_text("Pending")
    await expect(page.locator(".live-button")).to_have_text("Live")
    await cancel(world, job_id)
    await expect(row).to_contain_text("Cancelled")
    assert await row.get_attribute("data-mark") == "same"
    await expect(row.locator("input")).to_be_checked()
    await submit(world, "idle")
    await expect(page.get_by_text(re.compile(r"1 new since"))).to_be_visible()
    assert await page.locator("tbody tr").count() == 1
    await page.get_by_role("button", name="Show them").click()
    await expect(page.locator("tbody tr")).to_have_count(2)


async def cancel(world: World, job_id: str) -> None:
    async with world.api.client("operator") as client:
        assert (await client.post(f"/v1/jobs/{job_id}/cancel", json={})).status_code == 200


async def submit(world: World, queue: str) -> None:
    async with world.api.client("operator") as client:
        assert (await client.post("/v1/jobs", json={"kind": "send_mail", "queue": queue})).status_code == 202


async def test_job_page_follows_the_job_to_its_end(shown: DashboardPage, world: World) -> None:
    page = shown.page
    job_id = (await world.ids("export", State.RUNNING))[0]
    await shown.go(f"jobs/{job_id}", "export")
    await expect(page.locator(".state.large")).to_have_text("Running")
    heading = page.get_by_role("heading", name="Timeline")
    await heading.evaluate(MARK)
    world.release.set()
    await expect(page.locator(".state.large")).to_have_text("Completed")
    assert await heading.get_attribute("data-mark") == "same"


async def test_progress_and_log_of_a_job_move_while_it_runs(shown: DashboardPage, world: World) -> None:
    page = shown.page
    job_id = (await world.yard.enqueue("narrate", {})).id
    await shown.go(f"jobs/{job_id}", "narrate")
    lines = page.locator(".log li")
    for number in range(1, 4):
        world.parts.release()
        await expect(lines).to_have_count(number)
        await expect(lines.last).to_contain_text(f"part {number} is done")
        await expect(page.get_by_role("img", name=f"Progress: {25 * number} %")).to_be_visible()
        await expect(page.locator(".now")).to_contain_text(f"{number} of 4 parts")
        if number == 1:
            await lines.first.evaluate(MARK)
    assert await lines.first.get_attribute("data-mark") == "same"
    world.parts.release()
    await expect(page.locator(".state.large")).to_have_text("Completed")


async def test_live_updates_can_be_paused(shown: DashboardPage, world: World) -> None:
    page = shown.page
    await shown.go("queues/idle", "idle")
    waiting = page.locator(".numbers .value").first
    before = await waiting.inner_text()
    await page.keyboard.press("p")
    await expect(page.locator(".live-button")).to_have_text("Paused")
    other = await page.context.new_page()
    await other.goto(f"{shown.url}/#/queues/idle")
    await expect(other.locator(".numbers .value").first).to_have_text(before)
    await submit(world, "idle")
    await expect(other.locator(".numbers .value").first).not_to_have_text(before)  # a page that is live
    await other.close()
    assert await waiting.inner_text() == before
    await page.keyboard.press("p")
    await expect(waiting).not_to_have_text(before)


async def test_one_stream_per_tab(browser: Browser, world: World) -> None:
    async with world.page(browser) as shown:
        opened: list[str] = []
        closed: list[str] = []
        shown.page.on("request", lambda request: opened.append(request.url) if "/v1/events" in request.url else None)
        for event in ("requestfinished", "requestfailed"):
            shown.page.on(event, lambda request: closed.append(request.url) if "/v1/events" in request.url else None)
        for address, heading in (("queues", "Queues"), ("jobs", "Jobs"), ("workers", "Workers"), ("", "Overview")):
            await shown.go(address, heading)
            await expect(shown.page.locator(".live-button.live")).to_be_visible()
        await eventually(lambda: len(opened) - len(closed) <= 1)  # the browser reports a closed one later


async def test_lost_connection_is_shown_and_comes_back(browser: Browser, world: World) -> None:
    async with world.page(browser) as shown:
        page = shown.page
        await shown.go("queues/idle", "idle")
        await expect(page.locator(".live-button.live")).to_be_visible()
        await page.context.route("**/v1/**", lambda route: route.abort())
        # The stream that is open ends, as when a proxy cuts it.
        world.api.dependencies.broadcaster.end_all()
        await expect(page.locator(".banner")).to_contain_text("Connection lost")
        await expect(page.locator(".live-button")).to_have_text("Offline")
        await expect(page.locator(".numbers")).to_be_visible()  # the old numbers stay
        await submit(world, "idle")
        waiting = await page.locator(".numbers .value").first.inner_text()
        await page.context.unroute("**/v1/**")
        await page.evaluate(TRY_NOW)
        await shown.wait_for_message("Live again")
        await expect(page.locator(".numbers .value").first).not_to_have_text(waiting)
        shown.errors.clear()


async def test_jobs_that_came_while_the_connection_was_lost_are_announced(browser: Browser, world: World) -> None:
    """Their events were missed: the snapshot of the next stream tells of them."""
    async with world.page(browser) as shown:
        page = shown.page
        await submit(world, "idle")
        await shown.go("jobs?queue=idle", "Jobs")
        await expect(page.locator(".live-button.live")).to_be_visible()
        rows = await page.locator("tbody tr").count()
        await page.context.route("**/v1/**", lambda route: route.abort())
        world.api.dependencies.broadcaster.end_all()
        await expect(page.locator(".banner")).to_contain_text("Connection lost")
        await submit(world, "idle")
        await submit(world, "mail")
        await page.context.unroute("**/v1/**")
        await page.evaluate(TRY_NOW)
        await expect(page.get_by_text(re.compile(r"^1 new since"))).to_be_visible()
        await page.get_by_role("button", name="Show them").click()
        await expect(page.locator("tbody tr")).to_have_count(rows + 1)
        shown.errors.clear()


async def test_session_that_ends_asks_again_over_the_page(browser: Browser) -> None:
    async with dashboard_world(works=False) as world, world.page(browser) as shown:
        await world.yard.enqueue("send_mail", {})
        await shown.go("jobs", "Jobs")
        paths: list[str] = []
        shown.page.on("request", lambda request: paths.append(request.url))
        await shown.page.context.clear_cookies()
        await shown.page.get_by_role("link", name="Failed").click()
        dialog = shown.page.get_by_role("dialog")
        await expect(dialog).to_contain_text("Your session is over")
        await dialog.locator("#token").fill(await world.api.token("operator"))
        assert len([each for each in paths if "/v1/jobs?" in each]) <= 4  # it does not ask again and again
        await dialog.locator("#token").press("Enter")
        await expect(dialog).to_have_count(0)
        shown.forget_errors(401, "/v1/")  # of the page, and of the counts in the menu, if their time came just then
        await expect(shown.page.locator(".empty")).to_contain_text("No jobs that are failed")
        await shown.page.get_by_role("button", name=re.compile("admin|operator")).click()
        await shown.page.get_by_role("button", name="Log out").click()
        await expect(shown.page.locator("#token")).to_be_visible()


async def test_logging_out_asks_at_once_in_all_tabs_which_then_stop_asking(browser: Browser) -> None:
    async with dashboard_world(works=False) as world, world.page(browser) as shown:
        await shown.go("queues", "Queues")
        other = await shown.page.context.new_page()
        await other.clock.install()  # before the page sets its timers
        await other.goto(f"{world.url}/#/queues")
        await expect(other.locator(".live-button.live")).to_be_visible()
        asked: list[str] = []
        other.on("request", lambda request: asked.append(request.url))
        await shown.page.get_by_role("button", name=re.compile("admin")).click()
        await shown.page.get_by_role("button", name="Log out").click()
        await expect(shown.page.locator("#token")).to_be_visible()
        dialog = other.get_by_role("dialog")
        await expect(dialog).to_contain_text("Your session is over")
        asked.clear()
        await other.clock.run_for("05:00")
        assert [url for url in asked if "/v1/" in url] == []  # scripts of other pages may still be loaded
        await dialog.locator("#token").fill(await world.api.token("operator"))
        await dialog.locator("#token").press("Enter")
        await expect(dialog).to_have_count(0)
        await expect(other.locator(".live-button.live")).to_be_visible()
        await eventually(lambda: any("/v1/events" in url for url in asked))


async def test_logging_out_drops_the_requests_in_flight(browser: Browser) -> None:
    """Refused by the server, they would be written to the console while the page still waits for the logout."""
    logged_out = asyncio.Event()
    held: list[asyncio.Task[None]] = []

    async def hold(route: Route) -> None:
        await logged_out.wait()
        with contextlib.suppress(Error):  # the page has dropped it
            await route.fulfill(response=await route.fetch())

    async def log_out_slowly(route: Route) -> None:
        response = await route.fetch(max_redirects=0)
        logged_out.set()
        await asyncio.gather(*held)
        await route.fulfill(response=response)

    async with dashboard_world(works=False) as world, world.page(browser) as shown:
        await shown.go("queues", "Queues")
        await shown.page.route("**/v1/overview", lambda route: held.append(asyncio.create_task(hold(route))))
        await shown.page.route("**/logout", log_out_slowly)
        await shown.page.evaluate("location.hash = '#/'")
        await eventually(lambda: len(held) > 0)
        await shown.page.get_by_role("button", name=re.compile("admin")).click()
        await shown.page.get_by_role("button", name="Log out").click()
        await expect(shown.page.locator("main.login #token")).to_be_visible()
