"""The documentation and login pages in a real browser: no errors, no requests to other hosts, no policy violations."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect
from tests.browser.support import BrowserPage, browser_page
from tests.server.support import ids, submit_job

from jobyard.server.routes.table import ALL_ROUTES

LISTEN = """() => new Promise((resolve) => {
  const source = new EventSource("/v1/events");
  source.onmessage = (message) => { source.close(); resolve(JSON.parse(message.data).type); };
  source.onerror = () => resolve("an error");
})"""
# An injected inline script.
INJECT = """() => new Promise((resolve) => {
  document.addEventListener("securitypolicyviolation", (event) => resolve(event.effectiveDirective));
  const script = document.createElement("script");
  script.textContent = "document.title = 'injected'";
  document.body.append(script);
})"""


# The browser lives in the event loop of the module.
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def shown(browser: Browser) -> AsyncIterator[BrowserPage]:
    async with browser_page(browser) as made:
        yield made
        assert made.errors == []
        assert made.foreign_requests == []


async def test_docs_page_lists_every_route_and_sends_requests(shown: BrowserPage) -> None:
    page = shown.page
    await shown.go("/docs")
    await expect(page.locator("#routes")).to_have_attribute("aria-busy", "false")
    assert await page.locator("#routes section > details").count() == sum(len(each.all) for each in ALL_ROUTES)
    assert "`" not in await page.inner_text("body")
    await page.fill("#token", await shown.api.token("operator"))
    await page.press("#token", "Tab")
    await expect(page.locator("#who")).to_have_class("good")
    await page.fill("#search", "POST /v1/jobs/batch")
    await expect(page.locator("#routes section:visible")).to_have_count(1)
    await expect(page.locator("#routes section > details:visible")).to_have_count(1)
    await page.fill("#search", "")
    await page.click("#submit_job > summary")
    await page.fill("#submit_job textarea", '{"kind": "mail", "payload": {"number": 12345678901234567890}}')
    await page.click("#submit_job button")
    await expect(page.locator("#submit_job p.good")).to_contain_text("202")
    await page.click("#list_jobs > summary")
    await page.click("#list_jobs button")
    await expect(page.locator("#list_jobs pre")).to_contain_text('"number": 12345678901234567890')


async def test_log_in_use_the_session_and_log_out(shown: BrowserPage) -> None:
    page, api = shown.page, shown.api
    await shown.go("/login")
    await page.fill("#token", "jy_000000000000_wrongwrongwrongwrongwrong")
    await page.press("#token", "Enter")
    await expect(page.get_by_role("alert")).to_be_visible()
    assert [text for text in shown.errors if "401" not in text] == []
    shown.errors.clear()  # the browser logs the 401 of the failed login
    await page.fill("#token", await api.token("operator"))
    await page.press("#token", "Enter")
    await expect(page.locator("h1")).to_have_text("Overview")  # a login leads to the dashboard
    [cookie] = await page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    assert await page.evaluate(LISTEN) == "io.jobyard.snapshot.v1"
    await shown.go("/docs")
    await page.click("#submit_job > summary")
    await page.click("#submit_job button")
    await expect(page.locator("#submit_job p.good")).to_contain_text("202")
    async with api.client("viewer") as viewer:
        assert len(await ids(viewer)) == 1
    await shown.go("/login")
    await page.click("text=Log out")
    await expect(page.locator("#token")).to_be_visible()
    assert await page.context.cookies() == []


async def test_injected_script_does_not_run(shown: BrowserPage) -> None:
    for path in ("/docs", "/login"):
        await shown.go(path)
        assert await shown.page.evaluate(INJECT) == "script-src-elem"
        assert await shown.page.title() != "injected"
    assert all("Content Security Policy" in text for text in shown.errors)
    shown.errors.clear()


async def test_job_content_is_shown_as_text(shown: BrowserPage) -> None:
    async with shown.api.client("operator") as client:
        await submit_job(client, payload={"text": "<img src=x onerror=alert(1)>"}, kind="<b>bold</b>")
    await shown.go("/docs")
    await shown.page.fill("#token", await shown.api.token("viewer"))
    await shown.page.click("#list_jobs > summary")
    await shown.page.click("#list_jobs button")
    await expect(shown.page.locator("#list_jobs pre")).to_contain_text("<img src=x onerror=alert(1)>")
    assert await shown.page.locator("img, b").count() == 0


@pytest.mark.parametrize("path", ["/docs", "/login"])
async def test_pages_fit_a_phone(browser: Browser, path: str) -> None:
    async with browser_page(browser, viewport={"width": 360, "height": 700}, color_scheme="dark") as shown:
        await shown.go(path)
        await expect(shown.page.locator("h1")).to_be_visible()
        if path == "/docs":
            await expect(shown.page.locator("#routes")).to_have_attribute("aria-busy", "false")
        assert await shown.page.evaluate("document.documentElement.scrollWidth") <= 360
        assert shown.errors == []
