"""Every page and search of the dashboard answers soon, however many jobs the store holds: a million in the soak."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import httpx2 as httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser
from tests.browser.dashboard import DashboardPage, World
from tests.conformance.stores import STORES
from tests.server.support import ApiServer, serving
from tests.story.sizes import SOAK, size
from uuid_utils import uuid7

from jobyard.config.sections import ServerSection
from jobyard.domain.job import NewJob, QueueSettings, State
from jobyard.domain.outcome import Done, Failed
from jobyard.domain.state import Settlement, judge
from jobyard.ports.admin_store import Filter
from jobyard.ports.clock import SystemClock
from jobyard.ports.store import Store
from jobyard.server.routes.table import ALL_ROUTES

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(size(300, 3600))]

JOBS = size(6_000, 1_000_000)
BATCH = size(1_000, 5_000)
PAGE_SIZE = 50
PAGES = size(5, 20)
PAGE_SECONDS = 1.0
RARE, RARE_WORDS = 50, "50 jobs"
SPREAD = JOBS // RARE
FAILED_EVERY = 500

UNHURRIED = ServerSection(requests_per_second=1e9, request_burst=1_000_000_000)
HAS_CONTENT = """(before) => document.querySelector("h1")?.textContent !== before
  && document.querySelector("main .card, main .empty, main .banner") && !document.querySelector("[aria-busy=true]")"""
OTHER_ROWS = "(id) => { const row = document.querySelector('tbody tr'); return row && row.dataset.id !== id; }"

# Names and addresses of the pages after the #.
ADDRESSES = {
    "Overview": "",
    "Queues": "queues",
    "one queue": "queues/busy",
    "Jobs": "jobs",
    "Dead letters": "dead-letters",
    "Schedules": "schedules",
    "Workflows": "workflows",
    "Runners": "runners",
    "Code": "code",
    "Workers": "workers",
    "Settings": "settings",
    "audit log": "settings?tab=audit",
}
# Searches by one condition: an index answers them, so each page is full until the last match.
SEARCHES = {
    "everything": "",
    "queue, most jobs": "queue=busy",
    "queue, a fifth of the jobs, all old": "queue=later",
    "queue, the 50 jobs, all old": "queue=small",
    "group, a 40th of the jobs": "group=g7",
    "group, the 50 jobs spread over all": "group=spread",
    "group, the 50 jobs, all old": "group=rare",
    "kind, most jobs": "kind=mail",
    "kind, the 50 jobs spread over all": "kind=report",
    "kind, the 50 jobs, all old": "kind=odd",
    "tag, the 50 jobs, all old": "tag=red",
    "state PENDING": "state=PENDING",
    "state RUNNING": "state=RUNNING",
    "state COMPLETED": "state=COMPLETED",
    "state FAILED": "state=FAILED",
    "time, all": "created_after={oldest}",
    "queue and state PENDING, all old": "queue=later&state=PENDING",
    "queue and state COMPLETED": "queue=busy&state=COMPLETED",
    "queue, group and state COMPLETED": "queue=busy&group=g7&state=COMPLETED",
    "group and state PENDING": "group=g7&state=PENDING",
    "group and state PENDING, the 50 jobs spread over all": "group=spread&state=PENDING",
    "kind and state FAILED": "kind=mail&state=FAILED",
}
# Answered job by job: a page covers a bounded stretch, and "Search further" goes on. The clock of the store may have
# been set back by an hour: so much is passed job by job.
BOUNDED_SEARCHES = {
    "time, the oldest of jobs that are all less than an hour apart": "created_before={soon_after_the_oldest}",
    "text, in most jobs": "text=example.org",
    "text, in no job": "text=nowhere",
    "payload path, in every 1,000th job": "payload=part:17",
    "payload path and queue": "payload=part:17&queue=busy",
    "payload path, group and state": "payload=part:17&group=g17&state=PENDING",
}


def job(number: int) -> NewJob:
    """A fifth is old and not due; 50 old jobs, and 50 spread over all, have a group and a kind of their own."""
    payload = b'{"n":%d,"part":%d,"to":"ann@example.org"}' % (number, number % 1000)
    common: dict[str, Any] = {"id": str(uuid7()), "payload": payload}
    if number < RARE:
        return NewJob(kind="odd", queue="small", group="rare", tags=("red",), **common)
    if number % SPREAD == SPREAD // 2:
        return NewJob(kind="report", queue="sparse", group="spread", delay_seconds=1e6, **common)
    if number < JOBS // 5:
        return NewJob(kind="mail", queue="later", group=f"g{number % 40}", delay_seconds=1e6, **common)
    return NewJob(kind="mail", queue="busy", group=f"g{number % 40}", **common)


async def fill(store: Store) -> None:
    settings = QueueSettings(keep_completed=JOBS, keep_failed=JOBS, keep_at_most=10 * JOBS)
    for queue in ("busy", "small", "later", "sparse"):
        await store.configure(queue, settings)
    for start in range(0, JOBS, BATCH):
        await store.insert([job(number) for number in range(start, min(JOBS, start + BATCH))])
        if start >= JOBS // 5:
            await end_jobs(store, "busy", BATCH // 2)  # half of those that are due ends, the oldest
    await end_jobs(store, "small", RARE // 2, fails=True)
    await store.exchange("w", [], ("busy",), 20, 3600.0)
    queues = await store.queues()
    assert sum(each.waiting + each.delayed + each.running + each.completed + each.failed for each in queues) == JOBS


async def end_jobs(store: Store, queue: str, count: int, *, fails: bool = False) -> None:
    leases = (await store.exchange("w", [], (queue,), count, 3600.0)).leases
    ends = [
        Failed(message="boom", retry=False) if fails or number % FAILED_EVERY == 0 else Done()
        for number in range(count)
    ]
    settled = [Settlement(lease.key, judge(lease, end, worker="w")) for lease, end in zip(leases, ends, strict=False)]
    await store.exchange("w", settled, (queue,), 0, 3600.0)


class Crowd(World):
    """A server whose store is full of jobs."""

    def __init__(self, api: ApiServer, url: str, words: dict[str, str]) -> None:
        self.api = api
        self.url = url
        self.words = words  # instants in searches

    def address(self, search: str) -> str:
        return f"jobs?{search.format(**self.words)}"


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["sqlite", "redis", "postgres"])
async def crowd(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Crowd]:
    store = STORES[request.param](tmp_path_factory.mktemp("crowd"), SystemClock())  # type: ignore[arg-type]
    await store.open()
    try:
        await fill(store)
        api = ApiServer(store, ALL_ROUTES, UNHURRIED)
        async with serving(api.app) as url:
            oldest = (await store.find(Filter(queue="small"), 1)).jobs[0].created_at
            yield Crowd(api, url, {"soon_after_the_oldest": text_of(oldest + 1), "oldest": text_of(oldest)})
            api.dependencies.draining.set()
    finally:
        await store.close()


def text_of(instant: int) -> str:
    return datetime.fromtimestamp(instant / 1000, UTC).isoformat().replace("+00:00", "Z")


async def test_every_page_and_search_answers_soon(browser: Browser, crowd: Crowd) -> None:
    """In the soak each takes less than a second in the browser; with few jobs only what they show is compared."""
    seconds: dict[str, float] = {}
    short: dict[str, list[int]] = {}  # pages that are not full although others follow
    async with crowd.page(browser) as shown:
        for name, address in ADDRESSES.items():
            seconds[name] = await seconds_to_show(shown, address)
        for state in ("COMPLETED", "FAILED", "RUNNING", "PENDING"):
            job_id = (await crowd.api.store.find(Filter(queue="busy", states=(State(state),)), 1)).jobs[0].id
            seconds[f"one job, {state}"] = await seconds_to_show(shown, f"jobs/{job_id}")
        for name, search in (SEARCHES | BOUNDED_SEARCHES).items():
            seconds[f"search: {name}"] = await seconds_to_show(shown, crowd.address(search))
        assert await shown.page.locator("tbody tr").count() > 0
        await shown.go("jobs", "Jobs")
        for _ in range(PAGES - 1):
            seconds[f"page {PAGES} of Jobs"] = await seconds_to_turn(shown)
    async with crowd.api.client("admin", base=crowd.url) as client:
        for name, search in (SEARCHES | BOUNDED_SEARCHES).items():
            taken, numbers = await pages_of(client, crowd.address(search))
            seconds[f"{PAGES} pages, the slowest: {name}"] = max(taken)
            if name in SEARCHES and any(number < PAGE_SIZE for number in numbers[:-1]):
                short[name] = numbers
            assert RARE_WORDS not in name or sum(numbers) == RARE, (name, numbers)
    if SOAK:
        for name, one in seconds.items():
            print(f"| {name} | {one:.2f} |")
    assert short == {}
    if SOAK:
        assert {name: one for name, one in seconds.items() if one >= PAGE_SECONDS} == {}


async def seconds_to_show(shown: DashboardPage, address: str) -> float:
    """From the click on a link, as it were, until the page shows what it found."""
    other, heading = ("queues", "Queues") if address != "queues" else ("workers", "Workers")
    await shown.go(other, heading)
    started = time.monotonic()
    await shown.page.evaluate("(address) => { window.location.hash = address; }", f"#/{address}")
    await shown.page.wait_for_function(HAS_CONTENT, arg=heading)
    return time.monotonic() - started


async def seconds_to_turn(shown: DashboardPage) -> float:
    first = await shown.page.locator("tbody tr").first.get_attribute("data-id")
    started = time.monotonic()
    await shown.page.get_by_role("button", name="Older").click()
    await shown.page.wait_for_function(OTHER_ROWS, arg=first)
    return time.monotonic() - started


async def pages_of(client: httpx.AsyncClient, address: str) -> tuple[list[float], list[int]]:
    """How long each of the first pages takes, and how many jobs it has."""
    seconds: list[float] = []
    numbers: list[int] = []
    token: str | None = None
    for _ in range(PAGES):
        started = time.monotonic()
        query = f"/v1/{address}&page_size={PAGE_SIZE}" + (f"&page_token={token}" if token else "")
        response = await client.get(query)
        assert response.status_code == 200, (address, response.text)
        page = response.json()
        seconds.append(time.monotonic() - started)
        numbers.append(len(page["items"]))
        token = page.get("next_page_token")
        if token is None:
            break
    return seconds, numbers
