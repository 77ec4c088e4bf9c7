"""Each page of the dashboard shows what the store holds, and its numbers link to the lists that they count."""

from __future__ import annotations

import re

import msgspec
import pytest
from playwright.async_api import Browser, Locator, Response, expect
from tests.browser.dashboard import DashboardPage, World
from tests.support import eventually

from jobyard.dashboard.assets import load_assets
from jobyard.domain.job import State

pytestmark = pytest.mark.asyncio(loop_scope="module")
MAX_FIRST_PAGE_BYTES = 200_000
MAX_NODES = 1_500
NO_TURN = "\N{EN DASH}"


async def test_overview_shows_numbers_charts_queues_and_what_needs_attention(
    shown: DashboardPage, world: World
) -> None:
    page = shown.page
    await world.yard.enqueue("send_mail", {}, queue="nobody")
    await shown.go("", "Overview")
    strip = page.locator(".numbers")
    await expect(strip).to_contain_text("Running5 of 8 slots")
    await expect(strip).to_contain_text(re.compile(r"Oldest waiting job\d"))
    await expect(page.get_by_role("img", name=re.compile("Jobs finished per minute"))).to_be_visible()
    await expect(page.get_by_role("img", name=re.compile("Time from due to started"))).to_be_visible()
    await expect(shown.row("exports")).to_contain_text("5 of 6")
    await expect(shown.row("nobody")).to_contain_text("No worker")
    await expect(page.locator(".notes")).to_contain_text("nobody")
    for name in ("5 min", "24 h", "1 h"):
        await page.get_by_role("button", name=name, exact=True).click()
        await expect(page.get_by_role("button", name=name, exact=True)).to_have_attribute("aria-pressed", "true")
    await strip.locator("a[href*=RUNNING]").get_by_text("5", exact=True).click()
    await expect(page).to_have_url(re.compile(r"#/jobs\?state=RUNNING$"))
    await expect(page.locator("tbody tr")).to_have_count(5)


async def test_numbers_are_the_lengths_of_the_lists_that_they_link_to(shown: DashboardPage) -> None:
    page = shown.page

    async def follow(link: Locator) -> tuple[int, int]:
        await expect(link).to_have_text(re.compile(r"^\d+"))
        number = int((await link.inner_text()).split(" ")[0])
        await link.click()
        await expect(page.locator("h1")).to_contain_text("Jobs")
        await expect(page.locator("tbody tr").first).to_be_visible()
        return number, await page.locator("tbody tr").count()

    await shown.go("", "Overview")
    waiting = page.locator(".numbers > div").filter(has_text="Waiting").first
    await expect(waiting).to_contain_text("due now")  # one mail is not due for an hour
    number, listed = await follow(waiting.get_by_role("link"))
    assert number == listed > 1
    for row, state in (("mail", "PENDING"), ("exports", "PENDING"), ("exports", "RUNNING"), ("mail", "FAILED")):
        await shown.go("queues", "Queues")
        number, listed = await follow(shown.row(row).locator(f"a[href*='state={state}']"))
        assert (row, state, number) == (row, state, listed)
    await shown.go("queues/mail", "mail")
    number, listed = await follow(page.locator(".numbers a[href*='state=PENDING']"))
    assert number == listed
    await shown.go("", "Overview")
    failed = page.locator(".numbers > div").filter(has_text="dead letter")
    await expect(failed).to_contain_text("in the last hour")
    number = int(await failed.get_by_role("link").inner_text())
    await failed.get_by_role("link").click()
    await expect(page.get_by_role("heading", name=f"{number} dead letter")).to_be_visible()
    for address, heading in (("", "Overview"), ("queues", "Queues")):  # a rate is the length of no list
        await shown.go(address, heading)
        await expect(page.locator("main a[href*=COMPLETED]")).to_have_count(0)


async def test_charts_can_be_read_with_the_keyboard_and_as_a_table(shown: DashboardPage) -> None:
    await shown.go("", "Overview")
    chart = shown.page.locator(".chart").first
    await chart.locator("svg").focus()
    await shown.page.keyboard.press("ArrowLeft")
    await expect(chart.locator(".tooltip")).to_contain_text("UTC")
    await chart.get_by_text("Show as table").click()
    await expect(chart.get_by_role("columnheader", name="Finished per minute")).to_be_visible()


async def test_queues_and_one_queue_with_its_line_of_groups(shown: DashboardPage) -> None:
    page = shown.page
    await shown.go("queues", "Queues")
    await expect(shown.row("exports")).to_be_visible()
    await page.get_by_label("Find a queue").fill("expo")
    await expect(shown.row("mail")).to_have_count(0)
    await page.get_by_role("link", name="exports").click()
    await expect(page.locator("h1")).to_contain_text("exports")
    await expect(shown.row("globex")).to_contain_text("2 of 2")
    await expect(shown.row("globex")).to_contain_text("Full: keeps its place")
    await expect(page.locator(".line-group")).to_have_count(2)  # acme and globex have waiting jobs
    assert await page.locator(".line svg").get_attribute("aria-hidden") == "true"
    await expect(page.locator(".facts")).to_contain_text("Running per group2")


async def test_the_line_shows_whose_turn_it_is(shown: DashboardPage, world: World) -> None:
    page = shown.page
    for group in ("north", "north", "south", "east"):
        await world.yard.enqueue("send_mail", {}, queue="turns", group=group)
    await world.yard.set_limit("turns", "south", 0)
    await shown.go("queues/turns", "turns")
    for group, turn, words in (
        ("north", "1", "Next free slot"),
        ("south", NO_TURN, "Blocked: limit is 0"),
        ("east", "2", "After 1 other"),
    ):
        await expect(shown.row(group).locator("td").first).to_have_text(turn)
        await expect(shown.row(group)).to_contain_text(words)
    await expect(page.locator(".line-group .group-name")).to_have_text(["north", "south", "east"])
    await expect(page.locator(".line-group.next")).to_contain_text("north")


async def test_jobs_are_filtered_by_chips_tabs_and_the_address(shown: DashboardPage) -> None:
    page = shown.page
    await shown.go("jobs?queue=exports", "Jobs")
    await expect(page.locator("tbody tr")).to_have_count(8)
    await expect(page.get_by_role("columnheader", name="Queue")).to_have_count(0)  # pinned by the filter
    field = page.get_by_label("Add a filter")
    await field.fill("group:globex")
    await field.press("Enter")
    await expect(page.locator(".query .chip")).to_have_text([re.compile("queue:exports"), re.compile("group:globex")])
    await expect(page.locator("tbody tr")).to_have_count(4)
    await page.get_by_role("navigation", name="State").get_by_role("link", name=re.compile("Pending")).click()
    await expect(page).to_have_url(re.compile("state=PENDING"))
    await expect(page.locator("tbody tr")).to_have_count(2)
    await page.reload()
    await expect(page.locator("tbody tr")).to_have_count(2)
    await page.get_by_role("button", name="Remove group:globex").click()
    await expect(page.locator("tbody tr")).to_have_count(3)


async def test_search_by_a_payload_path_from_a_click(shown: DashboardPage) -> None:
    page = shown.page
    await shown.go("jobs?kind=send_mail", "Jobs")
    await page.get_by_role("link", name="to:ann@example.com").click()
    await expect(page.locator(".query .chip")).to_contain_text(["kind:send_mail", "payload.to:ann@example.com"])
    await expect(page.locator("tbody tr")).to_have_count(1)
    await shown.go("jobs?kind=nothing", "Jobs")
    await expect(page.locator(".empty")).to_contain_text("No jobs with kind:nothing")
    await expect(page.get_by_role("link", name="Clear filters")).to_be_visible()


async def test_suggestions_complete_what_is_typed(shown: DashboardPage) -> None:
    page = shown.page
    await shown.go("jobs", "Jobs")
    field = page.get_by_label("Add a filter")
    await field.fill("queue:exp")
    await expect(page.get_by_role("option", name="queue:exports")).to_be_visible()
    await field.press("ArrowDown")
    await field.press("Enter")
    await expect(page).to_have_url(re.compile("queue=exports"))


async def test_job_shows_timeline_progress_log_payload_and_hides_secrets(shown: DashboardPage, world: World) -> None:
    page = shown.page
    job_id = (await world.ids("export", State.RUNNING))[0]
    await shown.go(f"jobs/{job_id}", "export")
    await expect(page.get_by_role("img", name="Progress: 40 %")).to_be_visible()
    await expect(page.locator(".now")).to_contain_text("40 of 100 orders")
    await expect(page.locator(".timeline")).to_contain_text("running")
    await expect(page.locator(".log")).to_contain_text("exporting")
    payload = page.locator(".json").first
    await expect(payload).to_contain_text("•••••• hidden")
    assert "s3cret" not in await page.content()
    await shown.go("jobs?queue=exports", "Jobs")
    await expect(page.get_by_role("link", name="shop:acme").first).to_be_visible()
    assert "s3cret" not in await page.content()


async def test_secrets_are_revealed_by_those_who_may(browser: Browser, world: World) -> None:
    job_id = (await world.ids("export", State.RUNNING))[0]
    async with world.page(browser, "operator") as shown:
        await shown.go(f"jobs/{job_id}", "export")
        payload = shown.page.locator(".json").first
        await expect(payload).not_to_contain_text("s3cret")
        await shown.page.get_by_role("button", name="Show secrets").click()
        await expect(payload).to_contain_text("s3cret")
        await shown.page.get_by_role("button", name="Hide secrets").click()
        await expect(payload).not_to_contain_text("s3cret")
    async with world.page(browser, "viewer") as shown:
        received: list[str] = []

        async def keep(response: Response) -> None:
            if f"v1/jobs/{job_id}" in response.url and "events" not in response.url:
                received.append(await response.text())

        shown.page.on("response", keep)
        await shown.go(f"jobs/{job_id}", "export")
        await expect(shown.page.locator(".json").first).to_contain_text("•••••• hidden")
        await expect(shown.page.get_by_role("button", name="Show secrets")).to_have_count(0)
        assert any("api_token" in text for text in received)
        assert not any("s3cret" in text for text in received)


async def test_failed_job_shows_its_traceback_and_a_waiting_one_why_it_waits(
    shown: DashboardPage, world: World
) -> None:
    await shown.go(f"jobs/{(await world.ids('fail', State.FAILED))[0]}", "fail")
    await expect(shown.page.locator("details[open] pre")).to_contain_text("Traceback")
    await expect(shown.page.locator("details[open] pre .red")).to_contain_text("ValueError: the address is unknown")
    await shown.go(f"jobs/{(await world.ids('export', State.PENDING))[0]}", "export")
    await expect(shown.page.locator(".now")).to_contain_text("of 2 running")


async def test_large_integers_are_exact(shown: DashboardPage) -> None:
    await shown.go("jobs?kind=send_mail&text=ann%40", "Jobs")
    await shown.row("9007199254740993").get_by_role("link").first.click()
    await expect(shown.page.locator(".json")).to_contain_text(["9007199254740993", "9007199254740993"])


async def test_long_fractions_are_read(shown: DashboardPage, world: World) -> None:
    """Their digits are not an integer that must stay exact."""
    payload = {"to": "12345678901234567", "ratio": 0.3333333333333333}
    job = await world.yard.enqueue("send_mail", payload, delay=3600)
    await shown.go(f"jobs/{job.id}", "send_mail")
    for value in ("0.3333333333333333", '"12345678901234567"'):
        await expect(shown.page.locator(".json").first).to_contain_text(value)


async def test_schedules_in_words_with_next_run(shown: DashboardPage) -> None:
    await shown.go("schedules", "Schedules")
    await expect(shown.row("nightly")).to_contain_text("At 02:00 every day")
    await expect(shown.row("nightly")).to_contain_text("Asia/Seoul")
    await expect(shown.row("nightly")).to_contain_text(re.compile(r"in \d"))


async def test_workers_with_their_slots(shown: DashboardPage) -> None:
    await shown.go("workers", "Workers")
    await expect(shown.page.locator("tbody tr")).to_have_count(1)
    await expect(shown.page.locator("tbody tr")).to_contain_text("5 of 8")


async def test_workers_show_how_many_slots_are_taken_by_jobs_out_of_scope(browser: Browser, world: World) -> None:
    async with world.page(browser, "operator", {"queues": ("mail",)}) as shown:
        page = shown.page
        await shown.go("workers", "Workers")
        row = page.locator("tbody tr")
        await expect(row).to_contain_text("5 of 8")
        await expect(row.get_by_role("img", name="5 of 8")).to_be_visible()
        await expect(row).to_contain_text("busy with jobs that you cannot see")
        await expect(row.locator("small").filter(has_text="5 you cannot see")).to_be_visible()
        await expect(page.locator("main")).to_contain_text("5 of 8 slots in use")
        assert "export" not in await page.locator("main").inner_text()
        # It also serves other queues, so the server would refuse both.
        await expect(page.get_by_role("button", name=re.compile("Quiet|Stop"))).to_have_count(0)
    async with world.page(browser, "operator", {"queues": ("exports",)}) as shown:
        mail = (await world.yard.enqueue("wait", {})).id
        await world.wait_for("wait", State.RUNNING)
        await shown.go("workers", "Workers")
        line = shown.page.locator("tbody tr small").filter(has_text="cannot see")
        await expect(line).to_have_text("1 you cannot see")
        await expect(line).to_have_attribute("title", "1 slot busy with jobs that you cannot see")
        await expect(shown.page.locator("tbody tr")).to_contain_text("and 2 more")
        assert await line.evaluate("(line) => line.scrollWidth <= line.clientWidth"), "it is cut off"
        await world.yard.cancel(mail)
    async with world.page(browser, "viewer", {"groups": ("acme",)}) as shown:
        await shown.go("workers", "Workers")
        await expect(shown.page.locator("tbody tr")).to_contain_text("export")
        await expect(shown.page.locator("main")).to_contain_text("8 slots")
        await expect(shown.page.locator("main")).not_to_contain_text("in use")  # counts of all are not for it


async def test_pages_without_content_teach_the_next_step(shown: DashboardPage) -> None:
    await shown.go("runners", "Runners")
    await expect(shown.page.locator(".empty")).to_contain_text("runners.profiles")
    await shown.go("workflows", "Workflows")
    await expect(shown.page.locator(".empty")).to_contain_text(["The server knows no workflow.", "No runs yet."])
    await expect(shown.page.locator("main code")).to_have_text("jobyard up --workflows FOLDER")
    await shown.go("code", "Code")
    await expect(shown.page.get_by_label("Source code")).to_be_visible()


async def test_code_without_a_sandbox_shows_how_to_start_one(shown: DashboardPage) -> None:
    await shown.go("code", "Code")
    command = shown.page.locator("main .command")
    await expect(command.locator("code")).to_contain_text("jobyard worker --sandbox --store")
    await expect(command.get_by_role("button", name="Copy the command")).to_be_visible()


async def test_palette_jumps_and_keys_move(shown: DashboardPage) -> None:
    page = shown.page
    await shown.go("", "Overview")
    await page.keyboard.press("Control+k")
    await page.get_by_role("combobox", name=re.compile("Go to a page")).fill("expo")
    await expect(page.get_by_role("option", name=re.compile("exports"))).to_be_visible()
    await page.keyboard.press("Enter")
    await expect(page.locator("h1")).to_contain_text("exports")

    async def jobs_are_open() -> bool:
        await page.keyboard.type("gj")  # two keys that must follow each other within seconds
        return await page.locator("h1").inner_text() == "Jobs"

    await eventually(jobs_are_open)
    await expect(page.locator("tr[data-id]").first).to_be_visible()
    await page.keyboard.press("j")
    await page.keyboard.press("x")
    await expect(page.locator(".bulk")).to_contain_text("1 selected")
    await page.keyboard.press("j")
    await page.keyboard.press("j")
    await page.keyboard.press("Shift+X")
    await expect(page.locator(".bulk")).to_contain_text("3 selected")
    await page.keyboard.press("Escape")
    await expect(page.locator(".bulk")).to_have_count(0)
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog")).to_contain_text("Keyboard shortcuts")
    await page.keyboard.press("Escape")


async def test_keys_move_through_the_rows_of_every_list(shown: DashboardPage) -> None:
    page = shown.page
    await shown.go("queues", "Queues")
    await page.keyboard.press("j")
    await page.keyboard.press("j")
    await page.keyboard.press("k")
    await page.keyboard.press("j")
    await expect(page.locator("tbody tr").nth(1).get_by_role("link").first).to_be_focused()
    name = await page.locator("tbody tr .name").nth(1).inner_text()
    await page.keyboard.press("o")
    await expect(page.locator("h1")).to_contain_text(name)
    await shown.go("dead-letters", "Dead letters")
    await page.keyboard.press("j")
    await page.keyboard.press("Enter")
    await expect(page.locator("h1")).to_have_text("Jobs")


async def test_times_are_relative_utc_or_local(shown: DashboardPage) -> None:
    page = shown.page
    await shown.go("jobs?kind=fail", "Jobs")
    cell = page.locator("tbody time").first
    await expect(cell).to_contain_text("ago")
    await page.get_by_role("button", name="Relative").click()
    await expect(cell).to_have_text(re.compile(r"^\d\d:\d\d:\d\d$"))
    await page.get_by_role("button", name="UTC").click()
    await page.get_by_role("button", name="Local").click()
    await expect(cell).to_contain_text("ago")


async def test_first_page_is_small_and_has_few_elements(shown: DashboardPage) -> None:
    assets = load_assets()
    shared = sum(len(asset.compressed) for name, asset in assets.by_name.items() if not name.startswith("pages/"))
    assert shared + len(assets.by_name["pages/overview.js"].compressed) < MAX_FIRST_PAGE_BYTES
    await shown.go("jobs", "Jobs")
    assert await shown.page.evaluate("document.querySelectorAll('*').length") < MAX_NODES


async def test_environment_is_shown_beside_the_name(
    browser: Browser, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = msgspec.structs.replace(world.api.dependencies.settings, environment="staging")
    monkeypatch.setattr(world.api.dependencies, "settings", settings)
    async with world.page(browser) as shown:
        await expect(shown.page.locator(".environment")).to_have_text("staging")


async def test_text_is_copied_where_browsers_have_no_clipboard_for_pages(shown: DashboardPage, world: World) -> None:
    """As on plain HTTP beyond loopback."""
    page = shown.page
    job_id = (await world.ids("fail", State.FAILED))[0]
    await shown.go(f"jobs/{job_id}", "fail")
    await page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    await page.evaluate("document.addEventListener('copy', () => { window.copied = String(getSelection()); })")
    await page.get_by_role("button", name="Copy the id").click()
    await shown.wait_for_message("Copied.")
    assert await page.evaluate("window.copied") == job_id


async def test_a_server_without_runners_teaches_and_asks_no_route_that_is_missing(
    browser: Browser, world: World
) -> None:
    async with world.page(browser, "viewer") as shown:
        paths: list[str] = []
        shown.page.on("request", lambda request: paths.append(request.url))
        await shown.go("runners", "Runners")
        await expect(shown.page.locator("main")).to_contain_text("This server runs no GitHub runners.")
        await expect(shown.page.locator("main")).to_contain_text("runners.profiles")
        await expect(shown.page.locator("main code")).to_have_text("jobyard demo runners")
        await eventually(lambda: len([each for each in paths if each.endswith("/v1/me")]) > 1)  # asked again later
        assert not [each for each in paths if "/v1/runners" in each]
        await expect(menu_entry(shown, "Runners")).to_have_text("Runners")
        await expect(menu_entry(shown, "Workflows")).to_have_text("Workflows0")


async def test_first_visit_shows_the_login_page_without_an_error(browser: Browser, world: World) -> None:
    context = await browser.new_context()
    shown = DashboardPage(await context.new_page(), world.url)
    await shown.page.goto(world.url)
    await expect(shown.page.get_by_label("API token")).to_be_visible()
    assert shown.errors == []
    await context.close()


async def test_a_token_of_one_group_sees_its_jobs_without_errors(browser: Browser, world: World) -> None:
    context = await browser.new_context()
    shown = DashboardPage(await context.new_page(), world.url)
    token = await world.api.token("operator", groups=("acme",))
    await shown.page.goto(f"{world.url}/#/jobs")
    await shown.page.fill("#token", token)
    await shown.page.press("#token", "Enter")
    await expect(shown.page.locator("h1")).to_contain_text("Jobs")
    await expect(shown.row("acme").first).to_be_visible()
    await expect(shown.row("globex")).to_have_count(0)
    assert shown.errors == []
    await context.close()


async def test_a_picture_that_is_not_in_the_page_has_no_width(shown: DashboardPage, world: World) -> None:
    await shown.go("", "Overview")
    module = f"{world.url}/assets/{load_assets().digest}/dom.js"
    width = "async (module) => (await import(module)).contentWidth(document.createElement('div'))"
    assert await shown.page.evaluate(width, module) == 0


async def test_a_viewer_reads_an_error_and_its_log_without_the_password_in_them(browser: Browser, world: World) -> None:
    job_id = (await world.yard.enqueue("fail", {"text": "cannot reach postgres://app:hunter2@db.example/shop"})).id

    async def has_failed() -> bool:
        return job_id in await world.ids("fail", State.FAILED)

    await eventually(has_failed)
    for role, password in (("viewer", "[hidden]"), ("operator", "hunter2")):
        async with world.page(browser, role) as shown:
            await shown.go(f"jobs/{job_id}", "fail")
            text = f"cannot reach postgres://app:{password}@db.example/shop"
            await expect(shown.page.locator(".log li")).to_contain_text(text)
            await expect(shown.page.locator("details").first).to_contain_text(text)
            assert ("hunter2" in await shown.page.content()) == (role == "operator")
            await shown.go("dead-letters", "Dead letters")
            await expect(shown.row(text)).to_be_visible()


def menu_entry(shown: DashboardPage, name: str) -> Locator:
    return shown.page.locator(".sidebar .menu").get_by_role("link", name=name)
