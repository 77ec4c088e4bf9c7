"""The Code page runs real programs in a real sandbox and shows their output, verdict and resources."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect
from tests.browser.dashboard import DashboardPage, World, dashboard_world
from tests.sandbox.real_programs import program_worker

from jobyard.sandbox.attacks.private_daemon import private_daemon

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]
PROGRAM = """
import sys, time
print("hello", sys.stdin.readline().strip(), flush=True)
time.sleep(0.1)
print("done")
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[World]:
    """Without a sandbox these tests fail: a daemon must report the tier that the machine supports."""
    async with (
        private_daemon(slots=2, languages=["python", "javascript"]) as daemon,
        dashboard_world(works=False) as made,
        program_worker(made.api, daemon),
    ):
        yield made


async def run(shown: DashboardPage, source: str, given: str = "", language: str = "python") -> None:
    page = shown.page
    await shown.go("code", "Code")
    await page.get_by_label("Language").select_option(language)
    await page.get_by_label("Source code").fill(source)
    await page.get_by_label("Input", exact=True).fill(given)
    await page.get_by_role("button", name=re.compile("^Run")).click()


async def limit_time(shown: DashboardPage, seconds: int) -> None:
    page = shown.page
    await page.get_by_role("button", name="Change limits").click()
    await page.get_by_label("time s").fill(str(seconds))
    await page.get_by_role("button", name="Done").click()


async def test_program_streams_its_output_and_shows_verdict_resources_and_history(
    browser: Browser, world: World
) -> None:
    async with world.page(browser, "submitter") as shown:
        page = shown.page
        await shown.go("code", "Code")
        await limit_time(shown, 30)  # a busy machine takes longer than the default allows
        await run(shown, PROGRAM, "Ada\n")
        output = page.get_by_label("Output of the program")
        await expect(output).to_have_text("hello Ada\ndone\n")
        await expect(page.locator(".state.large")).to_have_text("OK")
        await expect(page.locator("main")).to_contain_text("exit code 0, nothing on stderr")
        facts = page.locator(".facts")
        await expect(facts).to_contain_text(re.compile(r"Wall time[\d.]+ m?sof 30 s"))
        await expect(facts).to_contain_text(re.compile(r"Peak memory[\d.]+ MBof 128 MB"))
        await expect(facts).to_contain_text(re.compile(r"Sandboxtier [ABC]"))
        await expect(shown.row("OK")).to_have_count(1)
        await run(shown, "import sys\nsys.exit('no such shop')")
        await expect(output).to_contain_text("no such shop")
        await expect(page.locator("main")).to_contain_text("exit code 1")
        await expect(shown.row("RUNTIME_ERROR").locator(".state.failed")).to_have_count(1)
        await run(shown, "console.log(6 * 7)", language="javascript")
        await expect(output).to_contain_text("42")
        await expect(page.locator("tbody tr")).to_have_count(3)
        await expect(page.locator("tbody tr").first).to_contain_text("OK")
        await page.reload()
        await expect(page.get_by_label("Source code")).to_have_value("console.log(6 * 7)")
        await expect(page.locator("tbody tr")).to_have_count(3)
        await page.locator("tbody tr").first.get_by_role("link").click()
        await expect(page.locator("h1")).to_contain_text("execute")
        assert "6 * 7" not in await page.locator("main").inner_text()  # the source is private
    async with world.page(browser, "submitter") as other:
        await other.go("code", "Code")
        await expect(other.page.locator("main")).to_contain_text("No runs yet")  # the history is one's own


async def test_editor_can_be_left_with_the_keyboard(shown: DashboardPage) -> None:
    await shown.go("code", "Code")
    editor = shown.page.get_by_label("Source code")
    await editor.fill("if x:\n")
    await editor.press("Tab")
    await expect(editor).to_be_focused()
    await expect(editor).to_have_value("if x:\n    ")
    await expect(shown.page.get_by_text("leaves the editor")).to_be_visible()
    await editor.press("Escape")
    await shown.page.keyboard.press("Tab")
    await expect(shown.page.get_by_label("Input")).to_be_focused()
    await expect(editor).to_have_value("if x:\n    ")
    await editor.focus()
    await editor.press("Tab")
    await expect(editor).to_be_focused()


async def test_program_is_stopped_and_held_to_its_limits(browser: Browser, world: World) -> None:
    async with world.page(browser, "operator") as shown:
        page = shown.page
        await shown.go("code", "Code")
        await limit_time(shown, 30)
        await run(shown, "import time\nprint('begun', flush=True)\ntime.sleep(60)")
        # While it runs: its output is streamed.
        await expect(page.get_by_label("Output of the program")).to_contain_text("begun")
        await page.get_by_role("button", name="Stop").click()
        await shown.wait_for_message("asked to stop")
        await expect(page.get_by_role("button", name=re.compile("^Run"))).to_be_visible()
        await limit_time(shown, 1)
        await run(shown, "while True: pass")
        await expect(shown.row("TIME_LIMIT").locator(".state.timeout")).to_have_count(1)
        await expect(page.locator(".state.large")).to_have_text("TIME_LIMIT")
