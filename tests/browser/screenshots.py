"""Screenshots for the docs, taken in a real browser: `python -m tests.browser.screenshots`."""

from __future__ import annotations

import asyncio

from playwright.async_api import expect
from tests.browser.support import browser_page
from tests.house.repository import DOCS


async def main() -> None:
    async with browser_page(viewport={"width": 1100, "height": 760}) as shown:
        page = shown.page
        await shown.go("/docs")
        _, token = await shown.api.tokens.create("ann", "operator")
        await page.fill("#token", token)
        await page.click("#submit_job > summary")
        await page.fill(
            "#submit_job textarea",
            '{\n  "kind": "run_suite",\n  "payload": {"suite": "smoke"},\n  "group": "team-a"\n}',
        )
        await page.click("#submit_job button")
        await expect(page.locator("#submit_job p.good")).to_contain_text("202")
        await page.screenshot(path=DOCS / "images/api-page.png")


if __name__ == "__main__":
    asyncio.run(main())
