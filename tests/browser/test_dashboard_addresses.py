"""Addresses: what may not be seen, what does not exist, and the page of a list."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Browser, expect
from tests.browser.dashboard import DashboardPage, World
from tests.server.support import serving

from jobyard.server.middleware import SecurityMiddleware

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_address_without_a_page_says_so(shown: DashboardPage) -> None:
    for address in ("nope", "nope/deeper", "workers/w1"):
        await shown.page.goto(f"{shown.url}/#/{address}")
        await expect(shown.page.locator("h1")).to_have_text("Page not found")
        await expect(shown.page.locator("main")).to_contain_text(f"There is no page #/{address}.")
    await shown.page.get_by_role("link", name="Go to Overview").click()
    await expect(shown.page.locator("h1")).to_have_text("Overview")


async def test_page_of_another_role_names_the_role(browser: Browser, world: World) -> None:
    async with world.page(browser, "submitter") as shown:
        await expect(shown.page.locator("h1")).to_have_text("Jobs")  # its first page
        for address, name, role in (("settings", "Settings", "admin"), ("queues/exports", "Queues", "operator")):
            await shown.page.goto(f"{shown.url}/#/{address}")
            await expect(shown.page.locator("h1")).to_have_text(name)
            text = re.compile(
                rf"You may not see {name}\..*It needs the role .*{role}.*has the role submitter", re.DOTALL
            )
            await expect(shown.page.locator("main")).to_contain_text(text)


async def test_token_of_one_group_begins_with_its_jobs(browser: Browser, world: World) -> None:
    context = await browser.new_context()
    shown = DashboardPage(await context.new_page(), world.url)
    await shown.log_in(await world.api.token("operator", groups=("acme",)))
    await expect(shown.page.locator("h1")).to_have_text("Jobs")
    await expect(shown.row("acme").first).to_be_visible()
    await expect(shown.page.locator(".banner")).to_have_count(0)
    await expect(shown.page.locator(".menu")).not_to_contain_text(re.compile("Overview|Queues"))
    await shown.page.goto(f"{world.url}/#/queues")
    await expect(shown.page.locator("main")).to_contain_text("needs a token that is not restricted to groups")
    await shown.go("workers", "Workers")
    await expect(shown.page.get_by_role("button", name=re.compile("Quiet|Stop"))).to_have_count(0)
    assert shown.errors == []
    await context.close()


async def test_unknown_job_asks_for_no_stream(shown: DashboardPage) -> None:
    asked: list[str] = []
    shown.page.on("request", lambda request: asked.append(request.url) if "/v1/events" in request.url else None)
    await shown.page.goto(f"{shown.url}/#/jobs/nope")
    await expect(shown.page.locator("h1")).to_have_text("Job not found")
    await expect(shown.page).to_have_title("Job not found · jobyard")
    await expect(shown.page.locator("main")).to_contain_text("There is no job nope.")
    await expect(shown.page.locator("main")).to_contain_text("may be misspelt")
    await shown.page.get_by_role("link", name="Go to Jobs").click()
    await expect(shown.page.locator("tbody tr").first).to_be_visible()
    await shown.go("queues", "Queues")
    assert [error.rpartition("/")[-1] for error in shown.errors] == ["nope"]  # the question whether it exists
    shown.errors.clear()
    assert not [url for url in asked if "job=" in url or "nope" in url]


async def test_unknown_workflow_run_and_unknown_queue_are_not_found(shown: DashboardPage) -> None:
    for address, heading in (("workflows/nope", "Workflow run not found"), ("queues/nope", "Queue not found")):
        await shown.page.goto(f"{shown.url}/#/{address}")
        await expect(shown.page.locator("h1")).to_contain_text(heading)
    shown.forget_errors(404, "/api/v2/workflows/nope")
    shown.forget_errors(404, "/v1/queues/nope")


async def test_pages_of_jobs_out_of_scope_name_what_they_need(browser: Browser, world: World) -> None:
    async with world.page(browser, "operator", {"queues": ("mail",)}) as shown:
        menu = shown.page.locator(".menu")
        await expect(menu).to_contain_text("Workers")
        await expect(menu).not_to_contain_text(re.compile("Code|Runners"))
        for address, queue in (("code", "code"), ("runners", "runners")):
            await shown.page.goto(f"{shown.url}/#/{address}")
            await expect(shown.page.locator("main")).to_contain_text(f"in the queue {queue};")


async def test_dashboard_works_under_the_path_prefix_of_a_proxy(browser: Browser, world: World) -> None:
    app = SecurityMiddleware(world.api.app, None, "/yard")
    async with serving(app) as url:
        context = await browser.new_context()
        shown = DashboardPage(await context.new_page(), f"{url}/yard")
        await shown.log_in(await world.api.token("operator"))
        for address, heading in (("", "Overview"), ("queues/exports", "exports"), ("code", "Code")):
            await shown.go(address, heading)
            await expect(shown.page.locator(".live-button.live")).to_be_visible()
        assert (shown.errors, shown.foreign_requests) == ([], [])  # nothing is asked beyond the prefix
        await context.close()
        world.api.dependencies.broadcaster.end_all()


async def test_viewer_can_select_nothing(browser: Browser, world: World) -> None:
    async with world.page(browser, "viewer") as shown:
        await shown.go("jobs", "Jobs")
        await expect(shown.page.locator("tbody tr").first).to_be_visible()
        await expect(shown.page.locator("input[type=checkbox]")).to_have_count(0)
        await shown.page.keyboard.press("j")
        await shown.page.keyboard.press("x")
        await expect(shown.page.locator("tr.current")).to_have_count(1)
        await expect(shown.page.locator("tr.selected")).to_have_count(0)
        await expect(shown.page.locator(".hints")).not_to_contain_text("retry")


async def test_state_that_does_not_exist_is_refused_in_the_words_of_the_server(shown: DashboardPage) -> None:
    page = shown.page
    await page.goto(f"{shown.url}/#/jobs?state=BANANA")
    problem = page.locator(".empty")
    await expect(problem).to_contain_text(re.compile("refuses this search.*BANANA", re.DOTALL))
    await page.get_by_role("link", name="Failed").click()
    await expect(page.locator("tbody tr").first).to_be_visible()
    await page.get_by_label("Add a filter").fill("state:banana")
    await page.get_by_label("Add a filter").press("Enter")
    await expect(problem).to_contain_text(re.compile("refuses this search.*BANANA", re.DOTALL))
    shown.errors.clear()


async def test_page_of_the_list_is_in_the_address(shown: DashboardPage, world: World) -> None:
    page = shown.page
    for number in range(120):
        await world.yard.enqueue("send_mail", {"number": number}, queue="idle")
    await shown.go("jobs?queue=idle", "Jobs")
    rows = page.locator("tbody tr")

    async def first() -> str | None:
        return await rows.first.get_attribute("data-id")

    start = await first()
    await page.get_by_role("button", name="Older").click()
    await expect(page).to_have_url(re.compile("page="))
    await expect(rows.first).not_to_have_attribute("data-id", start or "")
    second = await first() or ""
    await page.get_by_role("button", name="Older").click()
    await expect(rows).to_have_count(20)
    await page.go_back()
    await expect(rows.first).to_have_attribute("data-id", second)
    await page.reload()
    await expect(rows.first).to_have_attribute("data-id", second)
    await page.get_by_role("button", name="Newest").click()
    await expect(rows.first).to_have_attribute("data-id", start or "")
    await page.go_back()
    await expect(rows.first).to_have_attribute("data-id", second)
    await page.get_by_role("link", name="Pending").click()
    await expect(page).not_to_have_url(re.compile("page="))
