"""Forms and lists: what is misspelt is refused, what is hidden stays hidden, and what was asked for stays."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Browser, Route, expect
from tests.browser.dashboard import DashboardPage, World

from jobyard.domain.job import State

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def read_again(shown: DashboardPage) -> None:
    """Pause and resume: the snapshot of the new stream makes the page read everything again."""
    await expect(shown.page.locator(".live-button.live")).to_be_visible()
    await shown.page.keyboard.press("p")
    async with shown.page.expect_response(re.compile("page_token=")):
        await shown.page.keyboard.press("p")


async def test_a_token_with_a_misspelt_expiry_is_not_made(shown: DashboardPage, world: World) -> None:
    await shown.go("settings", "Settings")
    await shown.page.get_by_role("button", name="New token").click()
    dialog = shown.page.get_by_role("dialog")
    create = dialog.get_by_role("button", name="Create")
    await dialog.get_by_label("Name").fill("short-lived")
    for misspelt in ("1,5", "-1", "0", "1e999", "two"):
        await dialog.get_by_label("Expires after days").fill(misspelt)
        await expect(dialog.get_by_role("alert")).to_contain_text("Days are a number above 0")
        await expect(create).to_be_disabled()
    await dialog.get_by_label("Expires after days").fill("2")
    await expect(dialog.get_by_role("alert")).to_have_count(0)
    await create.click()
    await shown.confirm("Close")
    [made] = [each for each in await world.api.tokens.list() if each.name == "short-lived"]
    assert made.expires_at is not None


async def test_a_job_with_a_misspelt_delay_or_priority_is_not_submitted(shown: DashboardPage) -> None:
    await shown.go("jobs", "Jobs")
    await shown.page.get_by_role("button", name="New job").click()
    dialog = shown.page.get_by_role("dialog")
    await dialog.get_by_label("Kind").fill("send_mail")
    for label, misspelt in (("Delay in seconds", "1 h"), ("Delay in seconds", "-1"), ("Priority", "high")):
        await dialog.get_by_label(label).fill(misspelt)
        await expect(dialog.get_by_role("alert")).to_contain_text("is not a")
        await expect(dialog.get_by_role("button", name="Submit")).to_be_disabled()
        await dialog.get_by_label(label).fill("")
        await expect(dialog.get_by_role("button", name="Submit")).to_be_enabled()
    await dialog.get_by_role("button", name="Cancel").click()


async def test_hidden_values_of_a_payload_stay_hidden_in_forms_and_are_kept(shown: DashboardPage, world: World) -> None:
    page = shown.page
    job_id = (await world.ids("export", State.PENDING))[0]
    await shown.go(f"jobs/{job_id}", "export")
    await page.get_by_role("button", name="Clone…").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("has hidden values and stays as it is")
    await expect(dialog.get_by_label("Payload")).to_have_count(0)
    assert "s3cret" not in await page.content()
    await dialog.get_by_label("Group").fill("copies")
    await shown.confirm("Submit")
    await expect(page.locator(".facts")).to_contain_text("Groupcopies")
    copy = await world.yard.store.get(page.url.rpartition("/")[2])
    assert copy is not None and b"s3cret" in bytes(copy.payload)
    await page.get_by_role("button", name="Clone…").click()
    await dialog.get_by_role("button", name="Show and change it").click()
    await expect(dialog.get_by_label("Payload")).to_have_value(re.compile("s3cret"))
    await dialog.get_by_role("button", name="Cancel").click()
    schedule = {"name": "with-secret", "expression": "0 3 * * *", "kind": "export", "payload": {"api_token": "s3cret"}}
    async with world.api.client("operator") as client:
        assert (await client.post("/v1/schedules", json={**schedule, "group": "acme"})).status_code == 201
    await shown.go("schedules", "Schedules")
    await shown.row("with-secret").get_by_role("button", name="Edit").click()
    await expect(page.locator("form")).to_contain_text("has hidden values and stays as it is")
    await page.locator("form").get_by_label("Group").fill("")  # removes it
    await page.get_by_role("button", name="Save").click()
    await shown.wait_for_message("with-secret is changed.")
    async with world.api.client("operator") as client:
        changed = (await client.get("/v1/schedules/with-secret")).json()
    assert (changed["group"], changed["payload"]) == (None, {"api_token": "s3cret"})


async def test_a_switch_that_could_not_be_moved_shows_what_is(shown: DashboardPage) -> None:
    page = shown.page
    await shown.go("schedules", "Schedules")

    async def refuse(route: Route) -> None:
        await route.fulfill(status=503, json={"title": "Unavailable", "detail": "The store does not answer."})

    await page.route("**/v1/schedules/nightly/pause", refuse)
    switch = page.get_by_role("switch", name="nightly fires")
    await expect(switch).to_be_checked()
    await switch.click()
    await shown.wait_for_message("The store does not answer.")
    await expect(switch).to_be_checked()
    await page.unroute("**/v1/schedules/nightly/pause")
    shown.forget_errors(503, "/v1/schedules/nightly/pause")


async def test_a_schedule_is_paused_on_a_phone(browser: Browser, world: World) -> None:
    async with world.page(browser, "operator", viewport={"width": 400, "height": 800}) as shown:
        await shown.go("schedules", "Schedules")
        row = shown.row("nightly")
        await row.get_by_role("button", name="Pause").click()
        await expect(row).to_contain_text("Paused")
        await row.get_by_role("button", name="Resume").click()
        await expect(row.get_by_role("button", name="Pause")).to_be_visible()
        await expect(row).not_to_contain_text("Paused")
        await shown.page.set_viewport_size({"width": 1280, "height": 800})
        await expect(row.get_by_role("button", name="Pause")).to_be_hidden()  # there is a switch


async def test_older_changes_stay_in_the_audit_log(shown: DashboardPage, world: World) -> None:
    async with world.api.client("admin") as client:
        for limit in range(60):
            await client.put("/v1/queues/exports/groups/acme/limit", json={"limit": limit + 1})
    await shown.go("settings?tab=audit", "Settings")
    rows = shown.page.locator("tbody tr")
    await expect(rows).to_have_count(50)
    await shown.page.get_by_role("button", name="Older").click()
    await expect(rows.nth(59)).to_be_visible()
    await read_again(shown)
    await expect(rows.nth(59)).to_be_visible()
    await shown.go("settings?tab=unknown", "Settings")
    await expect(shown.page.get_by_role("heading", name=re.compile("token"))).to_be_visible()


async def test_older_dead_letters_stay_counted(
    shown: DashboardPage, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(12):
        await world.yard.enqueue("fail", {"text": "counted page by page"})
    number = len(await world.wait_for("fail", State.FAILED, 14))
    monkeypatch.setattr("jobyard.server.routes.dead_letters.MAX_GROUPED", 10)
    await shown.go("dead-letters?queue=mail", "Dead letters")
    await expect(shown.page.locator("main")).to_contain_text("of the newest 10")
    await shown.page.get_by_role("button", name="Count older ones too").click()
    await expect(shown.page.get_by_role("heading", name=f"{number} dead letters")).to_be_visible()
    await read_again(shown)
    await expect(shown.page.get_by_role("heading", name=f"{number} dead letters")).to_be_visible()
