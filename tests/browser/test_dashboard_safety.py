"""Nothing of a job becomes markup or script, pages fit a phone in dark mode, and axe finds nothing serious."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.async_api import Browser, TimeoutError, expect
from tests.browser.dashboard import DashboardPage, World
from tests.support import ROOT, eventually

from jobyard.domain.job import QueueSettings, State
from jobyard.domain.options import MAX_NAME
from jobyard.ports.schedule_store import WorkerInfo
from jobyard.server.middleware import CONTENT_SECURITY_POLICY

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOSTILE = "<img src=x onerror=alert(1)>'\"><script>alert(2)</script>{{7*7}}${7*7}</textarea>&amp;"
LONG = "W" * 10_000
HIDDEN = "a\u202eb\u2066c\x1bd"
# What ends beyond the right edge of the window, though nothing around it scrolls or clips; the page itself never does.
SPILLED = """() => {
  const edge = document.documentElement.clientWidth;
  const isHeld = (element) => element && (getComputedStyle(element).overflowX !== "visible" || isHeld(element.parentElement));
  const isBeyond = (element) => element.getBoundingClientRect().right > edge + 0.5 && !isHeld(element.parentElement);
  const page = document.documentElement.scrollWidth > edge ? ["the page"] : [];
  return [...page, ...[...document.querySelectorAll("#app *")].filter(isBeyond).map((each) => each.outerHTML.slice(0, 120))];
}"""  # noqa: E501
AXE = ROOT / "node_modules/axe-core/axe.min.js"
PAGES = [
    ("", "Overview"), ("queues", "Queues"), ("queues/exports", "exports"), ("jobs", "Jobs"),
    ("dead-letters", "Dead letters"), ("schedules", "Schedules"), ("workflows", "Workflows"), ("runners", "Runners"),
    ("code", "Code"), ("workers", "Workers"), ("settings", "Settings"), ("settings?tab=audit", "Settings"),
]  # fmt: skip


async def hostile_jobs(world: World) -> list[str]:
    """Jobs with hostile text in every field that a caller or a handler sets."""
    async with world.api.client("operator") as client:
        body: dict[str, Any] = {
            "kind": HOSTILE, "queue": HOSTILE, "group": HOSTILE, "tags": [HOSTILE],
            "payload": {HOSTILE: HOSTILE, "list": [HIDDEN, {HOSTILE: None}]}, "unique": {"key": HOSTILE},
        }  # fmt: skip
        response = await client.post("/v1/jobs", json=body)
        # A server with an app accepts only its own kinds.
        body["kind"] = "send_mail"
        if response.status_code != 202:
            body["payload"] = {"to": HOSTILE + HIDDEN}
            response = await client.post("/v1/jobs", json=body)
        assert response.status_code == 202, response.text
        job_id: str = response.json()["id"]
        await client.post(f"/v1/jobs/{job_id}/cancel", json={"reason": HOSTILE})
        schedule = {"name": HOSTILE, "expression": "0 2 * * *", "kind": "send_mail", "payload": {"to": HOSTILE}}
        response = await client.post("/v1/schedules", json=schedule)
        assert response.status_code == 201, response.text
    await world.api.tokens.create(HOSTILE, "viewer")
    failed = (await world.yard.enqueue("fail", {"text": HOSTILE + HIDDEN}, group=HOSTILE)).id
    await world.wait_for("fail", State.FAILED, 3)
    boast = (await world.yard.enqueue("boast", {"text": HOSTILE})).id
    await world.wait_for("boast", State.COMPLETED)
    worker = WorkerInfo(id=HOSTILE, host=HOSTILE, pid=1, queues=(HOSTILE,), concurrency=1, kinds=(HOSTILE,))
    await world.yard.store.heartbeat(worker, 600)
    await world.yard.store.configure(HOSTILE, QueueSettings(max_per_group=1))
    return [job_id, failed, boast]


async def test_hostile_text_stays_text_on_every_page(shown: DashboardPage, world: World) -> None:
    page = shown.page
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    hostile = await hostile_jobs(world)
    encoded = await page.evaluate("(text) => encodeURIComponent(text)", HOSTILE)
    addresses = [*PAGES, *((f"jobs/{each}", "") for each in hostile)]
    addresses += [
        (f"queues/{encoded}", ""),
        (f"jobs?queue={encoded}&text={encoded}&payload={encoded}:{encoded}", "Jobs"),
    ]
    for address, heading in addresses:
        await page.goto(f"{shown.url}/#/{address}")
        await expect(page.locator("h1")).to_contain_text(heading)
        await expect(page.locator("main .card, main .banner").first).to_be_visible()
        assert await page.locator("img, #app script, iframe, object, [onerror], [style]").count() == 0, address
    await page.goto(f"{shown.url}/#/workers")
    await expect(page.locator("main")).to_contain_text(HOSTILE)
    await page.goto(f"{shown.url}/#/jobs/{hostile[2]}")
    await expect(page.locator("main")).to_contain_text(HOSTILE)
    await page.goto(f"{shown.url}/#/jobs/{hostile[1]}")
    await expect(page.locator("details[open] pre")).to_contain_text(HOSTILE)
    await expect(page.locator("details[open] pre")).to_contain_text(r"\u202e")
    assert dialogs == []


async def long_jobs(world: World) -> list[tuple[str, str]]:
    """The addresses of jobs, a queue and lists whose texts are as long as the server accepts, without a space."""
    name = ("\N{WAVING WHITE FLAG}\u05d0\u0627W" * 200)[:MAX_NAME]
    text = LONG + "\u05d0\u0627" * 100 + "\N{FAMILY}" * 100 + "\\u0000"
    more: dict[str, Any] = {"queue": name, "group": name, "tags": [name]}
    waiting = (await world.yard.enqueue("send_mail", {"to": text}, unique=name, delay=3600, **more)).id
    failed = (await world.yard.enqueue("fail", {"text": text}, group=name)).id
    boast = (await world.yard.enqueue("boast", {"text": LONG[:900]}, group=name, tags=[name])).id
    async with world.api.client("operator") as client:
        schedule = {"name": name, "expression": "0 2 * * *", "kind": "send_mail", "payload": {"to": text}}
        assert (await client.post("/v1/schedules", json=schedule)).status_code == 201
        await client.put(f"/v1/queues/mail/groups/{quote(name)}/limit", json={"limit": 10**9})
    worker = WorkerInfo(id=name, host=name, pid=1, queues=(name,), concurrency=10**6, kinds=(name,))
    await world.yard.store.heartbeat(worker, 600)
    await world.api.tokens.create(name[:100], "viewer")

    async def have_ended() -> bool:
        found = await world.yard.store.get(failed), await world.yard.store.get(boast)
        return all(job is not None and job.state.is_final for job in found)

    await eventually(have_ended)
    jobs = [(f"jobs/{each}", kind) for each, kind in ((waiting, "send_mail"), (failed, "fail"), (boast, "boast"))]
    encoded = quote(name)
    return [*jobs, (f"queues/{encoded}", ""), (f"jobs?queue={encoded}&tag={encoded}&text={encoded}", "Jobs")]


async def test_long_texts_of_any_script_fit_every_page(browser: Browser, world: World) -> None:
    others = await long_jobs(world)
    async with world.page(browser) as shown:
        for width in (1280, 400):
            await shown.page.set_viewport_size({"width": width, "height": 800})
            for address, heading in [*PAGES, *others]:
                await shown.go(address, heading)
                await shown.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
                spilled = await shown.page.evaluate(SPILLED)
                assert not spilled, (address[:40], width, spilled[:3])


async def test_scripts_and_styles_of_others_are_blocked(shown: DashboardPage) -> None:
    assert "unsafe" not in CONTENT_SECURITY_POLICY
    await shown.go("jobs", "Jobs")
    directive = await shown.page.evaluate(
        """() => new Promise((resolve) => {
          document.addEventListener("securitypolicyviolation", (event) => resolve(event.effectiveDirective));
          const script = document.createElement("script");
          script.textContent = "document.title = 'injected'";
          document.body.append(script);
        })"""
    )
    assert directive == "script-src-elem"
    assert await shown.page.title() != "injected"
    shown.errors.clear()  # the browser logs the violation


async def test_pages_fit_a_phone_in_dark_mode(browser: Browser, world: World) -> None:
    job_id = (await world.ids("export", State.RUNNING))[0]
    options: dict[str, Any] = {"viewport": {"width": 400, "height": 800}, "color_scheme": "dark"}
    async with world.page(browser, **options) as shown:
        for address, heading in [*PAGES, (f"jobs/{job_id}", "export")]:
            await shown.go(address, heading)
            for width in (360, 400, 721, 900, 1024):
                await shown.page.set_viewport_size({"width": width, "height": 800})
                # Pictures are drawn again some frames after the window has changed.
                with contextlib.suppress(TimeoutError):
                    await shown.page.wait_for_function(f"() => ({SPILLED})().length === 0")
                assert await shown.page.evaluate(SPILLED) == [], (address, width)
        await shown.page.set_viewport_size({"width": 400, "height": 800})
        ground = await shown.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert ground == "rgb(14, 16, 19)"
        await shown.page.get_by_role("button", name="Light or dark").click()
        await expect(shown.page.locator("html")).to_have_attribute("data-theme", "light")
        await shown.page.get_by_role("button", name="More").click()
        await shown.page.get_by_role("link", name="Workers").click()
        await expect(shown.page.locator("h1")).to_have_text("Workers")


@pytest.mark.skipif(not AXE.exists(), reason="npm install brings axe-core")
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing_serious(browser: Browser, world: World, scheme: str) -> None:
    failed = (await world.ids("fail", State.FAILED))[0]
    axe = Path(AXE).read_text()
    async with world.page(browser, color_scheme=scheme) as shown:
        found: list[str] = []
        for address, heading in [*PAGES, (f"jobs/{failed}", "fail")]:
            await shown.go(address, heading)
            await shown.page.evaluate(axe)  # by the debugger, which the content security policy does not bind
            result = await shown.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
            found += [
                f"{address or 'overview'}: {each['id']}: {each['nodes'][0]['html'][:200]}"
                for each in result["violations"]
                if each["impact"] in ("serious", "critical")
            ]
        assert found == []
