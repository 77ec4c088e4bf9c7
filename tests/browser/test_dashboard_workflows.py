"""Workflows in the dashboard: the graph of a run changes live, and a failed step is shown as failed."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, expect
from tests.browser.dashboard import PATIENCE_MS, DashboardPage, World
from tests.server.support import ApiServer, serving
from tests.support import eventually

from jobyard import Context, Jobyard, WorkflowContext
from jobyard.app.declarations import job_factory
from jobyard.domain.workflow_files.parse import parse_workflow
from jobyard.operations.workflow_catalog import WorkflowCatalog
from jobyard.server.routes.table import ALL_ROUTES

pytestmark = pytest.mark.asyncio(loop_scope="module")
SCAN = {
    "id": "scan",
    "version": 2,
    "platform": "catalogue",
    "params": {"shop": {"type": "string", "default": "acme"}},
    "steps": [
        {"id": "pages", "kind": "fetch", "input": {"shop": "${params.shop}"}},
        {"id": "prices", "kind": "hold", "needs": ["pages"], "input": {}},
        {"id": "reviews", "kind": "fetch", "needs": ["pages"], "input": {"shop": "reviews"}},
        {"id": "store", "kind": "fetch", "needs": ["prices", "reviews"], "input": {"shop": "store"}},
    ],
    "on_failure": [{"id": "alert", "kind": "fetch", "input": {"shop": "alert"}}],
}


class Gates:
    """Events for which handlers wait, made anew by each test."""

    def __init__(self) -> None:
        self.release = asyncio.Event()


def declare(yard: Jobyard, gates: Gates) -> None:
    @yard.job(queue="catalogue", max_attempts=1)
    async def fetch(ctx: Context, shop: str) -> dict[str, str]:
        if shop == "broken":
            raise ConnectionError("broken.example does not answer")
        return {"shop": shop}

    @yard.job(queue="catalogue", max_attempts=1)
    async def hold(ctx: Context) -> int:
        await ctx.progress(30, "30 of 100 prices")
        await gates.release.wait()
        return 100

    async def reserve(order: int) -> str:
        return f"reserved {order}"

    async def charge(order: int) -> str:
        await gates.release.wait()
        if order == 13:
            raise ValueError("the card is expired")
        return f"charged {order}"

    @yard.workflow(queue="catalogue", max_attempts=1)
    async def place_order(ctx: WorkflowContext, order: int) -> list[str]:
        return [await ctx.step(reserve, order), await ctx.step(charge, order)]


@pytest.fixture(scope="module")
def gates() -> Gates:
    return Gates()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(gates: Gates) -> AsyncIterator[World]:
    yard = Jobyard("memory://", name="shop")
    declare(yard, gates)
    definition = parse_workflow(json.dumps(SCAN), file="workflows/scan.json")
    async with yard:
        api = ApiServer(yard.store, ALL_ROUTES, job_factory=job_factory(yard, has_app=True))
        api.dependencies.workflows = WorkflowCatalog({definition.id: definition}, ("catalogue",))
        async with serving(api.app) as url, yard.worker(concurrency=8, queues=["catalogue"], shutdown_timeout=0.1):
            try:
                yield World(yard, api, url, gates.release)
            finally:
                api.dependencies.draining.set()


async def run_scan(shown: DashboardPage, shop: str) -> None:
    page = shown.page
    await shown.go("workflows", "Workflows")
    await expect(page.locator("main")).to_contain_text("version 2, 5 steps")
    await page.get_by_role("button", name="Run…").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_label("Params")).to_have_value(re.compile('"shop": "acme"'))
    await dialog.get_by_label("Params").fill(json.dumps({"shop": shop}))
    await shown.confirm("Run")
    await expect(page.locator("h1")).to_contain_text("scan")


def step(shown: DashboardPage, name: str, state: str) -> Locator:
    """The box of a step in the graph, if it has this state."""
    boxes = shown.page.locator(".graph g").filter(has=shown.page.locator(f"rect.node.{state}"))
    return boxes.filter(has=shown.page.locator("text.step-name", has_text=re.compile(f"^{name}$")))


async def test_graph_of_a_workflow_file_changes_live_to_completed(browser: Browser, world: World, gates: Gates) -> None:
    gates.release.clear()
    async with world.page(browser, "operator") as shown:
        page = shown.page
        await run_scan(shown, "acme")
        await expect(step(shown, "pages", "completed")).to_have_count(1)
        await expect(step(shown, "reviews", "completed")).to_have_count(1)
        await expect(step(shown, "prices", "running")).to_contain_text("30 %")
        await expect(step(shown, "store", "pending")).to_have_count(1)
        await expect(page.locator(".graph path.edge")).to_have_count(4)
        entry = page.locator(".sidebar .menu").get_by_role("link", name="Workflows")
        await expect(entry).to_have_text("Workflows2")
        await expect(entry).to_have_attribute("href", "#/workflows")
        await expect(entry).to_have_attribute("title", "2 workflows: files and functions")
        await expect(page.locator(".state.large")).to_have_text("Running")
        gates.release.set()  # the page is not loaded again
        for name in ("prices", "store"):
            await expect(step(shown, name, "completed")).to_have_count(1)
        await expect(page.locator(".state.large")).to_have_text("Completed")
        await expect(step(shown, "alert", "cancelled")).to_have_count(1)  # skipped: nothing failed
        await expect(shown.row("store")).to_contain_text("completed")
        await expect(shown.row("No step failed.").locator(".red")).to_have_count(0)
        await expect(page.locator("main")).to_contain_text("ran for")
        await shown.go("workflows", "Workflows")
        newest = page.get_by_role("table", name="Runs of workflows").locator("tbody tr").first
        await expect(newest).to_contain_text("Completed")
        await expect(newest).to_contain_text("scan")


async def test_failed_step_of_a_workflow_file_is_shown_as_failed(browser: Browser, world: World, gates: Gates) -> None:
    async with world.page(browser, "operator") as shown:
        page = shown.page
        await run_scan(shown, "broken")
        await expect(step(shown, "pages", "failed")).to_have_count(1)
        await expect(shown.row("fetch").first).to_contain_text("broken.example does not answer")
        await expect(step(shown, "prices", "cancelled")).to_have_count(1)
        await expect(step(shown, "alert", "completed")).to_have_count(1)
        await expect(page.locator(".state.large")).to_have_text("Failed")
        await expect(page.locator(".banner.problem")).to_contain_text("broken.example does not answer")
        await page.get_by_role("link", name="Open the job").click()
        await expect(page.locator("h1")).to_contain_text("jobyard.workflow")
        steps = page.locator("section", has=page.get_by_role("heading", name="Steps"))
        await expect(steps.get_by_role("listitem").filter(has_text="pages").locator(".state.failed")).to_have_count(1)


async def test_runs_of_workflow_functions_are_listed_with_those_of_files(
    browser: Browser, world: World, gates: Gates
) -> None:
    gates.release.clear()
    async with world.page(browser, "viewer") as shown:
        page = shown.page
        await shown.go("workflows", "Workflows")
        job = await world.yard.enqueue("place_order", {"order": 8})
        row = page.locator("tbody tr").filter(has_text=job.id[-6:])
        await expect(row).to_contain_text("place_order")  # live
        await expect(row).to_contain_text("Running")
        gates.release.set()
        await expect(row).to_contain_text("Completed")
        await row.get_by_role("link", name="place_order").click()
        await expect(page.locator("h1")).to_contain_text("place_order")
        await expect(page.get_by_role("heading", name="Steps")).to_be_visible()


async def test_workflows_of_both_kinds_are_counted_and_the_numbers_lead_to_their_runs(
    browser: Browser, world: World, gates: Gates
) -> None:
    gates.release.clear()
    async with world.page(browser, "operator") as shown:
        page = shown.page
        await run_scan(shown, "acme")
        orders = [(await world.yard.enqueue("place_order", {"order": order})).id for order in (1, 2)]
        for name, number in (("scan", 1), ("place_order", 2)):
            await shown.go("workflows", "Workflows")
            await expect(page.get_by_role("heading", name="2 workflows")).to_be_visible()
            await expect(page.locator("main")).to_contain_text("1 file and 1 function")
            row = page.get_by_role("table", name="Workflows", exact=True).locator("tbody tr").filter(has_text=name)
            running = row.locator("a[href*='state=RUNNING']")
            await expect(running).to_have_text(str(number))
            await running.click()
            await expect(page.locator("h1")).to_have_text("Jobs")
            await expect(page.locator("tbody tr")).to_have_count(number)
            await page.go_back()
            await row.get_by_role("link", name=name).click()  # all its runs
            await expect(page.locator("h1")).to_have_text("Jobs")
            await expect(page.locator("tbody tr", has_text="Running")).to_have_count(number)
        assert {await each.get_attribute("data-id") for each in await page.locator("tbody tr").all()} >= set(orders)
    gates.release.set()


async def test_workflow_function_shows_its_steps_as_they_are_recorded(
    browser: Browser, world: World, gates: Gates
) -> None:
    gates.release.clear()
    good = await world.yard.enqueue("place_order", {"order": 7})
    async with world.page(browser, "viewer") as shown:
        page = shown.page
        steps = page.locator("section", has=page.get_by_role("heading", name="Steps")).get_by_role("listitem")
        await shown.go(f"jobs/{good.id}", "place_order")
        await expect(steps.filter(has_text="reserve").locator(".state.completed")).to_have_count(1)
        await expect(steps).to_have_count(1)
        gates.release.set()
        await expect(steps.filter(has_text="charge").locator(".state.completed")).to_have_count(1)
        await expect(page.locator(".state.large")).to_have_text("Completed")
        bad = await world.yard.enqueue("place_order", {"order": 13})

        async def has_ended() -> bool:
            job = await world.yard.store.get(bad.id)
            return job is not None and job.state.is_final

        await eventually(has_ended, PATIENCE_MS / 1000)
        await shown.go(f"jobs/{bad.id}", "place_order")
        await expect(steps.filter(has_text="reserve").locator(".state.completed")).to_have_count(1)
        failed = steps.filter(has=page.locator(".state.failed"))
        await expect(failed).to_contain_text("charge")
        await expect(failed).to_contain_text("ValueError: the card is expired")
