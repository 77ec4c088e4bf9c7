"""The dashboard in a real browser: a small world of jobs in all states, and pages that are logged in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from playwright.async_api import Browser, ConsoleMessage, Locator, Page, Request, expect
from tests.browser.support import ERRORS
from tests.server.support import ApiServer, serving
from tests.support import eventually

from jobyard import Context, Jobyard
from jobyard.app.declarations import job_factory
from jobyard.domain.job import State
from jobyard.ports.admin_store import Filter
from jobyard.server.routes.table import ALL_ROUTES

# A slow machine must not fail a test.
PATIENCE_MS = 30_000
expect.set_options(timeout=PATIENCE_MS)
# Messages vanish after seconds, in which a slow machine may not look: the page itself notes each that it showed.
NOTE_MESSAGES = """
window.notedMessages = [];
new MutationObserver(() => {
  for (const each of document.querySelectorAll(".toast span, .banner.back")) {
    if (!window.notedMessages.includes(each.textContent)) window.notedMessages.push(each.textContent);
  }
}).observe(document, {subtree: true, childList: true, characterData: true});
"""
HAS_MESSAGE = "(text) => window.notedMessages.some((each) => each.includes(text))"


class DashboardPage:
    """A page of the dashboard that is logged in, and what went wrong in it."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.errors: list[str] = []
        self.foreign_requests: list[str] = []
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", self._on_request)
        page.set_default_timeout(PATIENCE_MS)

    async def log_in(self, token: str) -> None:
        await self.page.add_init_script(NOTE_MESSAGES)
        await self.page.goto(f"{self.url}/")
        await self.page.fill("#token", token)
        await self.page.press("#token", "Enter")
        await expect(self.page.locator(".sidebar")).to_be_visible()

    async def go(self, address: str, heading: str) -> None:
        """Open a page by its address after the #, and wait until it shows its content."""
        await self.page.goto(f"{self.url}/#/{address}")
        await expect(self.page.locator("h1")).to_contain_text(heading)
        await expect(self.page.locator("main .card").first).to_be_visible()
        await expect(self.page.locator("[aria-busy=true]")).to_have_count(0)

    def row(self, text: str) -> Locator:
        return self.page.locator("tbody tr").filter(has_text=text)

    async def confirm(self, name: str | None = None) -> None:
        """Press the button that does it, in the open dialog."""
        dialog = self.page.locator("dialog[open]")
        await (dialog.get_by_role("button", name=name) if name else dialog.locator("button[type=submit]")).click()
        await expect(dialog).to_have_count(0)

    async def wait_for_message(self, text: str) -> None:
        """Wait until the page shows or has shown a message with the text."""
        await self.page.wait_for_function(HAS_MESSAGE, arg=text)

    def forget_errors(self, status: int, path: str) -> None:
        """Forget the errors that the browser logged for responses with this status, of which there must be some."""
        expected = [each for each in self.errors if f"status of {status} " in each and path in each]
        assert expected, self.errors
        self.errors = [each for each in self.errors if each not in expected]

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ERRORS:
            self.errors.append(f"{message.text} {message.location.get('url', '')}")

    def _on_request(self, request: Request) -> None:
        if not request.url.startswith((f"{self.url}/", "data:")):
            self.foreign_requests.append(request.url)


class World:
    """A store with jobs in all states, its server, and a worker that runs until the world ends."""

    def __init__(
        self, yard: Jobyard, api: ApiServer, url: str, release: asyncio.Event, parts: asyncio.Semaphore | None = None
    ) -> None:
        self.yard = yard
        self.api = api
        self.url = url
        self.release = release  # set: the slow jobs end
        self.parts = parts or asyncio.Semaphore(0)  # each release lets a job `narrate` go on by one part

    async def ids(self, kind: str, *states: State) -> Sequence[str]:
        found = await self.yard.store.find(Filter(kind=kind, states=states or None), 50)
        return [job.id for job in found.jobs]

    async def wait_for(self, kind: str, state: State, number: int = 1) -> Sequence[str]:
        async def are_there() -> bool:
            return len(await self.ids(kind, state)) >= number

        await eventually(are_there)
        return await self.ids(kind, state)

    @asynccontextmanager
    async def page(
        self, browser: Browser, role: str = "admin", scope: Mapping[str, Any] | None = None, **options: Any
    ) -> AsyncIterator[DashboardPage]:
        """Logged in with a new token of this role, restricted to the scope."""
        context = await browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
        shown = DashboardPage(await context.new_page(), self.url)
        try:
            await shown.log_in(await self.api.token(role, **(scope or {})))
            yield shown
            assert shown.errors == [], shown.errors
            assert shown.foreign_requests == []
        finally:
            await context.close()


def declare(yard: Jobyard, release: asyncio.Event, parts: asyncio.Semaphore | None = None) -> None:
    yard.queue("exports", max_running=6, max_per_group=2)
    yard.queue("idle")

    @yard.job(queue="mail", max_attempts=1)
    async def send_mail(ctx: Context, to: str = "", number: int = 0, ratio: float = 0.0) -> dict[str, object]:
        return {"sent": to, "number": number}

    @yard.job(queue="mail", max_attempts=1)
    async def fail(ctx: Context, text: str = "the address is unknown") -> None:
        await ctx.log(text, "error")
        raise ValueError(text)

    @yard.job(queue="mail", max_attempts=1, timeout=0.1)
    async def oversleep(ctx: Context) -> None:
        await release.wait()

    @yard.job(queue="mail", max_attempts=1)
    async def narrate(ctx: Context) -> None:
        assert parts is not None
        for number in range(1, 4):
            await parts.acquire()
            await ctx.log(f"part {number} is done")
            await ctx.progress(25 * number, f"{number} of 4 parts")
        await parts.acquire()

    @yard.job(queue="mail", max_attempts=1)
    async def wait(ctx: Context) -> None:
        await release.wait()

    @yard.job(queue="exports", max_attempts=2, timeout=3600)
    async def export(ctx: Context, shop: str = "", api_token: str = "") -> None:
        await ctx.log(f"exporting {shop}")
        await ctx.progress(40, "40 of 100 orders")
        await release.wait()

    @yard.job(queue="mail")
    async def boast(ctx: Context, text: str = "") -> dict[str, object]:
        await ctx.progress(10, text, data={text: text})
        await ctx.log(text)
        async with ctx.step(text, data={text: text}):
            pass
        return {text: text}

    yard.cron("0 2 * * *", tz="Asia/Seoul", name="nightly")(send_mail)


@asynccontextmanager
async def dashboard_world(*, works: bool = True) -> AsyncIterator[World]:
    """A server with two groups of running exports, waiting ones, completed and failed mails, and a worker."""
    release, parts = asyncio.Event(), asyncio.Semaphore(0)
    yard = Jobyard("memory://", name="shop")
    declare(yard, release, parts)
    async with yard:
        api = ApiServer(yard.store, ALL_ROUTES, job_factory=job_factory(yard, has_app=True))
        async with yard.scheduler(), serving(api.app) as url:
            world = World(yard, api, url, release, parts)
            try:
                if works:
                    async with yard.worker(concurrency=8, queues=["mail", "exports"], shutdown_timeout=0.1, lease=15):
                        await fill(world)
                        yield world
                else:
                    yield world
            finally:
                release.set()
                api.dependencies.draining.set()


async def fill(world: World) -> None:
    yard = world.yard
    for group, number in (("acme", 3), ("globex", 4), ("initech", 1)):
        for _ in range(number):
            await yard.enqueue("export", {"shop": group, "api_token": "s3cret"}, group=group, tags=["billing"])
    await yard.enqueue("send_mail", {"to": "ann@example.com", "number": 9007199254740993})
    await yard.enqueue("send_mail", {"to": "bob@example.com"})
    await yard.enqueue("send_mail", {"to": "later@example.com"}, delay=3600)
    for _ in range(2):
        await yard.enqueue("fail", {})
    await world.wait_for("export", State.RUNNING, 5)
    await world.wait_for("send_mail", State.COMPLETED, 2)
    await world.wait_for("fail", State.FAILED, 2)
