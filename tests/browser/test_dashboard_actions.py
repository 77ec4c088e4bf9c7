"""Each action of the dashboard changes the store, is in the audit log, and asks before it destroys something."""

from __future__ import annotations

import asyncio
import re
from functools import partial

import pytest
from playwright.async_api import Browser, Route, expect
from tests.browser.dashboard import DashboardPage, World
from tests.support import eventually

from jobyard.api.schemas.charts import ConfigurationItem
from jobyard.domain.job import State

pytestmark = pytest.mark.asyncio(loop_scope="module")
# The counts of the menu are also read every 15 s, which would hide that a change does not read them.
NO_REGULAR_COUNT = """
const begin = window.setInterval;
window.setInterval = (action, ms) => (ms === 15000 ? 0 : begin(action, ms));
"""


async def state_of(world: World, job_id: str) -> State | None:
    job = await world.yard.store.get(job_id)
    return None if job is None else job.state


async def has_state(world: World, job_id: str, state: State) -> bool:
    return await state_of(world, job_id) is state


async def test_limits_are_edited_in_place(shown: DashboardPage, world: World) -> None:
    page = shown.page
    await shown.go("queues/exports", "exports")
    await page.get_by_role("button", name=re.compile(r"^Running: 6")).click()
    field = page.get_by_label("Running", exact=True)
    await field.fill("7")
    await expect(page.locator(".edit-field")).to_contain_text("was 6")
    await field.fill("-5")
    await expect(page.get_by_role("alert")).to_have_text("A whole number from 0, or empty for no limit.")
    await expect(field).to_have_attribute("aria-invalid", "true")
    await field.press("Escape")
    await expect(page.get_by_role("button", name=re.compile(r"^Running: 6"))).to_be_focused()
    await page.get_by_role("button", name=re.compile(r"^Running: 6")).click()
    await page.get_by_label("Running", exact=True).fill("8")
    await page.get_by_label("Running", exact=True).press("Enter")
    await expect(page.get_by_role("button", name=re.compile(r"^Running: 8"))).to_be_visible()
    await expect(page.get_by_role("button", name=re.compile(r"^Running: 8"))).to_be_focused()
    [queue] = [each for each in await world.yard.queues() if each.name == "exports"]
    assert queue.settings.max_running == 8
    await page.get_by_role("button", name=re.compile(r"^Limit of acme")).click()
    await page.get_by_label("Limit of acme", exact=True).fill("1")
    await page.get_by_label("Limit of acme", exact=True).press("Enter")
    await expect(shown.row("acme")).to_contain_text("own limit, serial")


async def test_pause_and_resume_a_queue_and_a_group(shown: DashboardPage, world: World) -> None:
    page = shown.page
    await shown.go("queues/exports", "exports")
    await page.locator("main").get_by_role("button", name="Pause").first.click()
    await expect(page.locator(".page-state")).to_have_text("Paused")
    await page.locator("main").get_by_role("button", name="Resume").first.click()
    await expect(page.locator(".page-state")).not_to_have_text("Paused")
    await shown.row("globex").get_by_role("button", name="Pause").click()
    await expect(shown.row("globex")).to_contain_text("Paused: keeps its place")
    await shown.row("globex").get_by_role("button", name="Resume").click()
    await expect(shown.row("globex")).not_to_contain_text("Paused")
    assert [group.paused async for group in world.yard.groups("exports") if group.name == "globex"] == [False]


async def test_drain_asks_for_the_name_of_the_queue(shown: DashboardPage, world: World) -> None:
    for _ in range(3):
        await world.yard.enqueue("send_mail", {}, queue="idle")
    await shown.go("queues/idle", "idle")
    await shown.page.get_by_role("button", name="Drain…").click()
    dialog = shown.page.get_by_role("dialog")
    await expect(dialog.get_by_role("button", name="Delete 3 waiting jobs")).to_be_disabled()
    await dialog.get_by_role("textbox").fill("idle")
    await shown.confirm("Delete 3 waiting jobs")
    await shown.wait_for_message("3 jobs deleted")
    assert await world.ids("send_mail", State.PENDING) != []  # those of other queues
    assert not [each for each in await world.yard.queues() if each.name == "idle" and each.waiting]


async def test_run_now_priority_cancel_retry_clone_and_delete_one_job(shown: DashboardPage, world: World) -> None:
    page = shown.page
    job_id = (await world.yard.enqueue("send_mail", {"to": "x"}, queue="idle", delay=3600)).id
    await shown.go(f"jobs/{job_id}", "send_mail")
    await page.get_by_role("button", name="Priority…").click()
    await page.get_by_role("dialog").get_by_role("textbox").fill("9")
    await shown.confirm("Change")
    await expect(page.locator(".facts")).to_contain_text("Priority9")
    await page.get_by_role("button", name="Run now").click()
    await expect(page.get_by_role("button", name="Run now")).to_have_count(0)
    await page.get_by_role("button", name="Cancel…").click()
    await page.get_by_role("dialog").get_by_role("textbox").fill("not needed")
    await shown.confirm("Cancel the job")
    await expect(page.locator(".state.large")).to_have_text("Cancelled")
    await expect(page.locator(".now")).to_contain_text("not needed")
    await page.get_by_role("button", name="Retry").click()
    await expect(page.locator(".state.large")).to_have_text("Pending")
    await page.get_by_role("button", name="Clone…").click()
    await page.get_by_role("dialog").get_by_label("Group").fill("copies")
    await shown.confirm("Submit")
    await expect(page.locator(".facts")).to_contain_text("Groupcopies")
    assert job_id not in page.url
    await page.get_by_role("button", name="Delete…").click()
    await shown.confirm("Delete the job")
    await expect(page.locator("h1")).to_have_text("Jobs")
    assert await state_of(world, job_id) is State.PENDING
    recorded = [entry.action for entry in await world.api.dependencies.operations.audit.read((0, 0, 0, 0), 1000)]
    for action in ("job.prioritise", "job.run_now", "job.cancel", "job.retry", "job.delete"):
        assert action in recorded


async def test_new_job_with_an_exact_integer(shown: DashboardPage, world: World) -> None:
    await shown.go("jobs", "Jobs")
    await shown.page.get_by_role("button", name="New job").click()
    dialog = shown.page.get_by_role("dialog")
    await dialog.get_by_label("Kind").fill("send_mail")
    await dialog.get_by_label("Payload").fill('{"number": 12345678901234567891}')
    await shown.confirm("Submit")
    await expect(shown.page.locator(".json").first).to_contain_text("12345678901234567891")


async def test_bulk_actions_on_a_selection_and_on_all_that_match(shown: DashboardPage, world: World) -> None:
    page = shown.page
    made = [(await world.yard.enqueue("send_mail", {}, queue="idle", group="bulk")).id for _ in range(5)]
    await shown.go("jobs?queue=idle&group=bulk", "Jobs")
    await expect(page.locator("tbody tr")).to_have_count(5)
    await page.locator("tbody input[type=checkbox]").nth(0).click()
    await page.locator("tbody input[type=checkbox]").nth(1).click(modifiers=["Shift"])
    await expect(page.locator(".bulk")).to_contain_text("2 selected")
    await expect(page.locator(".bulk").get_by_role("button", name=re.compile("Retry"))).to_have_count(0)
    await page.locator(".bulk").get_by_role("button", name=re.compile("Cancel 2")).click()
    await expect(page.get_by_role("dialog")).to_contain_text("2 selected jobs")
    await shown.confirm()
    await shown.wait_for_message("2 jobs cancelled")
    await page.locator("tbody tr").filter(has_text="Pending").locator("input").first.click()
    await page.get_by_role("button", name="Select all 5 that match").click()
    await page.locator(".bulk").get_by_role("button", name=re.compile("Delete all")).click()
    await expect(page.get_by_role("dialog")).to_contain_text("All jobs with queue:idle and group:bulk")
    await shown.confirm()

    async def are_gone() -> bool:
        return [await state_of(world, each) for each in made] == [None] * 5

    await eventually(are_gone)


async def test_dead_letters_are_grouped_and_redriven(shown: DashboardPage, world: World) -> None:
    page = shown.page
    for number in range(3):
        await world.yard.enqueue("fail", {"text": f"order {number} is gone"})
    await world.wait_for("fail", State.FAILED, 5)
    await shown.go("dead-letters", "Dead letters")
    row = shown.row("is gone")
    await expect(row).to_contain_text("3")
    await row.get_by_role("button", name="Redrive…").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("Redrive:")
    await expect(dialog).to_contain_text("dead letters of fail with")
    goes_on = asyncio.Event()

    async def as_if_it_went_on(route: Route) -> None:
        response = await route.fetch()
        running = {"state": "running", "changed": 1, "unchanged": 0, "matching": 3}
        await route.fulfill(response=response, json={**await response.json(), **({} if goes_on.is_set() else running)})

    await page.route("**/v1/operations**", as_if_it_went_on)
    await dialog.locator("button[type=submit]").click()
    await expect(dialog.get_by_role("status")).to_have_text("1 of 3")
    await expect(dialog.get_by_role("img", name="33 %")).to_be_visible()
    goes_on.set()
    await expect(dialog).to_have_count(0)
    await shown.wait_for_message("3 jobs retried")
    await page.unroute("**/v1/operations**")


async def test_dead_letters_of_timeouts_show_the_type_of_the_error(shown: DashboardPage, world: World) -> None:
    await world.yard.enqueue("oversleep", {})
    await world.wait_for("oversleep", State.TIMEOUT)
    await shown.go("dead-letters", "Dead letters")
    row = shown.row("oversleep")
    await expect(row).to_contain_text("TimeoutError: ran longer than … s")
    await expect(row).to_contain_text("for example ran longer than 0.1 s")
    await row.get_by_role("link", name="1", exact=True).click()
    await expect(shown.page.locator("tbody tr")).to_have_count(1)


async def test_menu_counts_dead_letters_anew_after_a_redrive(browser: Browser, world: World) -> None:
    for job_id in [(await world.yard.enqueue("fail", {"text": "counted in the menu"})).id for _ in range(2)]:
        await eventually(partial(has_state, world, job_id, State.FAILED))
    await world.yard.pause("mail")  # so that they do not fail again
    async with world.page(browser) as shown:
        page = shown.page
        await page.add_init_script(NO_REGULAR_COUNT)
        await page.reload()
        await shown.go("dead-letters", "Dead letters")
        badge = page.locator(".menu a[href='#/dead-letters'] .count")
        before = int(await badge.inner_text())
        await shown.row("counted in the menu").get_by_role("button", name="Redrive…").click()
        await shown.confirm()
        await expect(badge).to_have_text(str(before - 2))
    await world.yard.resume("mail")


async def test_attempts_after_a_retry_are_numbered_on(shown: DashboardPage, world: World) -> None:
    job_id = (await world.yard.enqueue("fail", {"text": "tried twice"})).id

    async def has_failed(times: int) -> bool:
        job = await world.yard.store.get(job_id)
        return job is not None and job.state is State.FAILED and len(job.errors) == times

    await eventually(lambda: has_failed(1))
    await world.yard.retry(job_id)
    await eventually(lambda: has_failed(2))
    await shown.go(f"jobs/{job_id}", "fail")
    await expect(shown.page.locator("details summary .state")).to_have_text(["2 · raised", "1 · raised"])
    await expect(shown.page.locator("svg.timeline text.label")).to_contain_text("2 · ")


async def test_schedules_are_made_changed_run_paused_and_deleted(shown: DashboardPage, world: World) -> None:
    page = shown.page
    await shown.go("schedules", "Schedules")
    await page.get_by_role("button", name="New").click()
    await page.get_by_label("Name").fill("digest")
    await page.get_by_label("Cron expression").fill("0 9,13 * * 1-5")
    await expect(page.locator("form")).to_contain_text("At 09:00 and 13:00")
    await expect(page.locator(".next-runs li")).to_have_count(10)
    await page.get_by_label("Cron expression").fill("0 99 * * *")
    await expect(page.locator("form .field-error")).to_be_visible()
    await expect(page.locator("form .field-error")).to_contain_text("99")
    await page.get_by_label("Cron expression").fill("")
    await expect(page.locator("form .field-error")).to_contain_text("Type an expression")
    await page.get_by_label("Cron expression").fill("30 6 * * *")
    await expect(page.locator("form")).to_contain_text("At 06:30 every day")
    await page.locator("form select").first.select_option("send_mail")
    await page.get_by_role("button", name="Create").click()
    row = shown.row("digest")
    await expect(row).to_contain_text("At 06:30 every day")
    await row.get_by_role("button", name="Run").click()
    await shown.wait_for_message("is submitted")
    await row.get_by_role("switch").click()
    await expect(row).to_contain_text("Paused")
    await row.get_by_role("button", name="Edit").click()
    await page.get_by_label("Cron expression").fill("0 7 * * *")
    await expect(page.locator("form")).to_contain_text("At 07:00 every day")
    await page.get_by_role("button", name="Save").click()
    await expect(row).to_contain_text("At 07:00 every day")
    await row.get_by_role("button", name="Delete…").click()
    await shown.confirm("Delete the schedule")
    await expect(row).to_have_count(0)
    await expect(shown.row("nightly").get_by_role("button", name="Edit")).to_have_count(0)  # declared in code


async def test_tokens_are_made_rotated_and_revoked_and_changes_are_listed(shown: DashboardPage, world: World) -> None:
    page = shown.page
    port = ConfigurationItem(key="server.port", value=[8080], origin="default")
    world.api.dependencies.configuration = (port,)
    await shown.go("settings", "Settings")
    await page.get_by_role("button", name="New token").click()
    await page.get_by_label("Name").fill("shop-api")
    await page.get_by_label("Role").select_option("submitter")
    await page.get_by_role("dialog").get_by_role("button", name="Create").click()
    await expect(page.locator(".secret")).to_contain_text("jy_")
    await shown.confirm("Close")
    row = shown.row("shop-api")
    await expect(row).to_contain_text("submitter")
    await row.get_by_role("button", name="Rotate…").click()
    await page.get_by_role("dialog").get_by_role("button", name="Rotate").click()
    await expect(page.locator(".secret")).to_contain_text("jy_")
    await shown.confirm("Close")
    await row.get_by_role("button", name="Revoke…").click()
    await shown.confirm("Revoke")
    await expect(row).to_have_count(0)
    await page.get_by_role("link", name="Audit log").click()
    await expect(page.locator("tbody tr").first).to_contain_text("token.revoke")
    await page.get_by_role("link", name="Configuration").click()
    await expect(page.locator("main .card")).to_contain_text("server.port")


async def test_worker_is_quieted_and_stopped(browser: Browser, world: World) -> None:
    async with world.page(browser, "operator") as shown:
        await shown.go("workers", "Workers")
        await shown.page.get_by_role("button", name="Quiet").click()
        await expect(shown.page.locator("tbody tr")).to_contain_text("takes no more jobs")
        await shown.page.get_by_role("button", name="Stop…").click()
        await expect(shown.page.get_by_role("dialog")).to_contain_text("finishes")
        await shown.confirm("Stop the worker")
        await shown.wait_for_message(" stops.")
        await expect(shown.page.locator(".empty")).to_contain_text("No worker is running")


async def test_viewer_sees_no_buttons_and_a_submitter_only_its_pages(browser: Browser, world: World) -> None:
    async with world.page(browser, "viewer") as shown:
        forbidden = re.compile(
            r"Pause|Resume|Drain|Retry|Cancel|Delete|Priority|Clone|New |New$|Redrive|Quiet|Stop|Edit|Run$"
        )
        failed = (await world.ids("fail", State.FAILED))[0]
        pages = [
            ("", "Overview"), ("queues/exports", "exports"), (f"jobs/{failed}", "fail"), ("jobs", "Jobs"),
            ("dead-letters", "Dead letters"), ("schedules", "Schedules"), ("workers", "Workers"),
        ]  # fmt: skip
        for address, heading in pages:
            await shown.go(address, heading)
            await expect(shown.page.locator("main").get_by_role("button", name=forbidden)).to_have_count(0)
        await expect(shown.page.locator(".sidebar")).not_to_contain_text("Settings")
        await expect(shown.page.get_by_role("switch").first).to_have_count(0)
    async with world.page(browser, "submitter") as shown:
        await expect(shown.page.locator("h1")).to_have_text("Jobs")
        menu = shown.page.locator(".sidebar .menu")
        await expect(menu).to_contain_text("Code")
        await expect(menu).not_to_contain_text("Queues")
