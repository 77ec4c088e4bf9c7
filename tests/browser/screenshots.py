"""Screenshots for the docs, taken in a real browser from a busy shop: `python -m tests.browser.screenshots [NAME…]`."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from playwright.async_api import Browser, Page, expect
from tests.browser.dashboard import DashboardPage
from tests.browser.shop import lively_shop
from tests.browser.support import browser_page, launched
from tests.house.repository import DOCS
from tests.server.support import ApiServer

IMAGES = DOCS / "images"
WARM_UP_SECONDS = 60
SETTLE_SECONDS = 2.5
WIDE, HIGH = 1440, 860
PHONE = 400


class Picture(NamedTuple):
    name: str
    address: str
    scheme: str = "light"
    width: int = WIDE
    height: int = HIGH


COLLATZ = """# Longest Collatz chain below a limit
import sys

def chain(n, seen={1: 1}):
    path = []
    while n not in seen:
        path.append(n)
        n = n // 2 if n % 2 == 0 else 3 * n + 1
    size = seen[n]
    for step in reversed(path):
        size += 1
        seen[step] = size
    return size

limit = int(sys.stdin.readline())
best = max(range(1, limit), key=chain)
print("start", best)
print("steps", chain(best))
"""
PROGRAMS = (
    ("while True: pass", ""),
    ("print(sum(map(int, input().split())))", "1 2 three"),
    ("print(sum(map(int, input().split())))", "1 2 3"),
    (COLLATZ, "100000\n"),
)
PICTURES = (
    Picture("overview", ""),
    Picture("overview-dark", "", "dark"),
    Picture("queues", "queues", height=520),
    Picture("queue", "queues/exports", height=1000),
    Picture("jobs", "jobs?queue=exports", "dark"),
    Picture("job", "jobs/{running}", height=860),
    Picture("dead-letters", "dead-letters", height=560),
    Picture("schedules", "schedules", "dark"),
    Picture("workflows", "workflows/{workflow}", height=740),
    Picture("workflow-runs", "workflows", "dark"),
    Picture("runners", "runners"),
    Picture("code", "code", "dark", height=960),
    Picture("workers", "workers", height=520),
    Picture("settings", "settings?tab=audit", height=680),
    Picture("phone-overview", "", width=PHONE, height=860),
    Picture("phone-queue", "queues/exports", "dark", PHONE, 860),
)


async def api_page() -> None:
    async with launched() as browser, browser_page(browser, viewport={"width": 1100, "height": 760}) as shown:
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
        await save(page, "api-page")


async def save(page: Page, name: str) -> None:
    path = IMAGES / f"{name}.png"
    await page.screenshot(path=path)
    compress(path)


def compress(path: Path) -> None:
    """Reduce the colours if the machine has a program for it: the pictures are flat."""
    program = shutil.which("pngquant")
    if program is not None:
        subprocess.run([program, "--force", "--skip-if-larger", "--output", str(path), "256", str(path)], check=False)


async def first_id(api: ApiServer, **params: Any) -> str:
    async with api.client("viewer") as client:
        jobs = (await client.get("/v1/jobs", params=params)).json()["items"]
        # One in the middle of its work, and without a traceback, which would show the paths of this machine.
        best = max(jobs, key=lambda job: (job["progress"] or {"percent": 0})["percent"] % 80 - 100 * len(job["errors"]))
        return str(best["id"])


async def dashboard_pages(names: Sequence[str]) -> None:
    wanted = [each for each in PICTURES if not names or each.name in names]
    async with lively_shop() as (api, url), launched() as browser:
        await asyncio.sleep(WARM_UP_SECONDS)
        await operate(api)
        _, token = await api.tokens.create("Ada Kaya", "admin")
        for scheme in ("light", "dark"):
            await pictures_of(browser, url, api, token, [each for each in wanted if each.scheme == scheme], scheme)


async def operate(api: ApiServer) -> None:
    """Changes of a working day, for the audit log and the line of groups."""
    _, token = await api.tokens.create("Ben Okafor", "admin")
    async with api.client() as client:
        client.headers["Authorization"] = f"Bearer {token}"
        for path in ("exports/groups/hooli/pause", "exports/groups/hooli/resume", "reports/pause", "reports/resume"):
            await client.post(f"/v1/queues/{path}")
        await client.post("/v1/schedules/invoice-run/pause")
        await client.post("/v1/queues/exports/groups/cyberdyne/pause")
        for group, limit in (("umbrella", 2), ("soylent", 1), ("umbrella", 1)):
            await client.put(f"/v1/queues/exports/groups/{group}/limit", json={"limit": limit})
        await client.post("/v1/tokens", json={"name": "shop-api", "role": "submitter"})
        await client.post("/v1/tokens", json={"name": "grafana", "role": "viewer"})


async def pictures_of(
    browser: Browser, url: str, api: ApiServer, token: str, wanted: Sequence[Picture], scheme: Any
) -> None:
    context = await browser.new_context(color_scheme=scheme, reduced_motion="reduce")
    shown = DashboardPage(await context.new_page(), url)
    await shown.log_in(token)
    for picture in wanted:
        ids = {
            "running": await first_id(api, state="RUNNING", kind="export_orders"),
            "workflow": await first_id(api, kind="jobyard.workflow", state="RUNNING"),
        }
        await shown.page.set_viewport_size({"width": picture.width, "height": picture.height})
        await shown.page.goto(f"{url}/#/{picture.address.format_map(ids)}")
        await expect(shown.page.locator("main .card").first).to_be_visible()
        await shape(shown.page, picture.name)
        await asyncio.sleep(SETTLE_SECONDS)
        await save(shown.page, picture.name)
    print(json.dumps(shown.errors), flush=True)
    await context.close()


async def shape(page: Page, name: str) -> None:
    """Bring a page into the state that its picture shows."""
    if name == "schedules":
        await page.get_by_role("button", name="New").click()
        await page.get_by_label("Name").fill("team-digest")
        await page.get_by_label("Cron expression").fill("0 9,13,17 * * 1-5")
        await page.get_by_label("Time zone").fill("Asia/Seoul")
    if name == "jobs":
        for number in (2, 4):
            await page.locator("tbody input[type=checkbox]").nth(number).click()
    if name == "code":
        for source, given in PROGRAMS:
            await page.get_by_label("Source code").fill(source)
            await page.get_by_label("Input", exact=True).fill(given)
            await page.get_by_role("button", name=re.compile("^Run")).click()
            await expect(page.locator(".state.large")).to_be_visible()
            await expect(page.get_by_role("button", name=re.compile("^Run"))).to_be_visible()
    if name == "queue":
        await page.get_by_role("button", name=re.compile("^Running: ")).click()
        await page.get_by_label("Running", exact=True).fill("12")


if __name__ == "__main__":
    if not sys.argv[1:] or "api-page" in sys.argv[1:]:
        asyncio.run(api_page())
    asyncio.run(dashboard_pages(sys.argv[1:]))
