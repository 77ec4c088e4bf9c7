"""A lively shop for screenshots: queues, groups, failures, schedules and a worker, in this process."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import math
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.browser.runner_site import DashboardRunners, dashboard_runners
from tests.sandbox.real_programs import program_worker
from tests.server.support import ApiServer, serving

from jobyard import Context, Jobyard
from jobyard.app.declarations import job_factory
from jobyard.config.sections import ServerSection
from jobyard.domain.histogram import bucket_of
from jobyard.domain.workflow_files.parse import parse_workflow
from jobyard.operations.chart_log import RESOLUTIONS, ChartEntry, QueueTally, append_entry
from jobyard.operations.workflow_catalog import WorkflowCatalog
from jobyard.sandbox.attacks.private_daemon import private_daemon
from jobyard.server.routes.table import ALL_ROUTES

SHOPS = {
    "globex": 90, "initech": 1, "acme": 24, "hooli": 14, "umbrella": 30, "stark": 9,
    "wonka": 12, "cyberdyne": 11, "soylent": 6, "tyrell": 8, "massive": 3,
}  # fmt: skip


def shop() -> Jobyard:
    yard = Jobyard("memory://", name="shop")
    yard.queue("exports", max_running=9, max_per_group=3, max_waiting_per_group=2000)
    yard.queue("mail", max_running=12)
    yard.queue("images", max_running=4)
    yard.queue("reports", max_running=6)
    yard.queue("crm-sync", max_running=8)

    @yard.job(queue="exports", max_attempts=3, timeout=120, backoff=3)
    async def export_orders(
        ctx: Context, shop: str, since: str, format: str = "csv", order_id_from: int = 0, api_token: str = ""
    ) -> dict[str, object]:
        orders = random.randrange(20, 60) * 100
        await ctx.log(f"exporting the orders of {shop} since {since}")
        for page in range(1, 21):
            await asyncio.sleep(random.uniform(0.3, 0.9))
            if random.random() < 0.004:
                await ctx.log(f"{shop}.example did not answer within 15 s", "error")
                raise TimeoutError(f"{shop}.example did not answer")
            if random.random() < 0.06:
                await ctx.log(f"{shop}.example answered in {random.uniform(9, 15):.1f} s", "warning")
            await ctx.progress(5 * page, f"{orders * page // 20:,} of {orders:,} orders")
            if page % 4 == 0:
                await ctx.log(f"page {page}: {orders // 20} orders")
        return {"orders": orders, "file": f"exports/{shop}/{since}.{format}"}

    @yard.job(queue="mail", max_attempts=2, backoff=1)
    async def send_mail(ctx: Context, to: str, template: str) -> dict[str, str]:
        await asyncio.sleep(random.uniform(0.05, 0.25))
        if random.random() < 0.01:
            raise ConnectionError("mail.example refused the connection")
        return {"message_id": f"{random.randrange(1 << 40):x}"}

    @yard.job(queue="images", max_attempts=2)
    async def resize(ctx: Context, path: str, width: int) -> None:
        await asyncio.sleep(random.uniform(0.3, 0.7))

    @yard.job(queue="reports")
    async def nightly_report(ctx: Context, day: str = "today") -> None:
        for part in range(10):
            await asyncio.sleep(0.5)
            await ctx.progress(10 * (part + 1), f"part {part + 1} of 10")

    @yard.job(queue="crm-sync")
    async def sync_contact(ctx: Context, contact: int, region: str) -> None:
        raise AssertionError("no worker serves its queue")

    declare_schedules(yard)

    @yard.job(queue="mail", max_attempts=1)
    async def charge_card(ctx: Context, order: int) -> None:
        if order % 5 == 0:
            raise ValueError(f"the card of order {order} is expired")
        raise RuntimeError(f"HTTP 502 from api.pay.example for order {order}")

    @yard.job(queue="images", max_attempts=1)
    async def make_thumbnail(ctx: Context, path: str) -> None:
        raise OSError(f"cannot identify image file {path!r}")

    @yard.job(queue="reports", max_attempts=1, timeout=1)
    async def render_invoice(ctx: Context, invoice: int) -> None:
        await asyncio.sleep(60)

    @yard.job(queue="mail", max_attempts=1)
    async def notify_courier(ctx: Context, parcel: int) -> None:
        raise KeyError("tracking_number")

    @yard.job(queue="catalogue", max_attempts=2, backoff=1)
    async def fetch_page(ctx: Context, url: str) -> dict[str, str]:
        if url.startswith("soylent") and url.endswith("reviews"):
            raise ConnectionError("soylent.example does not answer")
        seconds = random.uniform(2, 9)
        for part in range(1, 11):
            await asyncio.sleep(seconds / 10)
            await ctx.progress(10 * part, f"{12 * part} of 120 pages")
        return {"url": url}

    @yard.job(queue="catalogue", max_attempts=1)
    async def store_products(ctx: Context, pages: list[object]) -> int:
        await asyncio.sleep(random.uniform(2, 6))
        return len(pages)

    yard.cron("0 2 * * *", tz="Asia/Seoul")(nightly_report)
    yard.cron("*/15 7-19 * * 1-5", tz="Europe/Berlin", name="office-report")(nightly_report)
    yard.cron("30 8 1 * *", tz="Europe/Berlin", name="invoice-run")(nightly_report)
    return yard


def declare_schedules(yard: Jobyard) -> None:
    """Schedules with a history to look at after a minute: good, failing, timing out and skipping ones."""
    ticks = itertools.count()

    @yard.cron("*/5 * * * * *", name="price-feed")
    @yard.job(queue="reports")
    async def price_feed(ctx: Context) -> None:
        await asyncio.sleep(0.2)

    @yard.cron("*/4 * * * * *", name="crm-pull")
    @yard.job(queue="reports", max_attempts=1, timeout=1)
    async def pull_contacts(ctx: Context) -> None:
        tick = next(ticks) % 20
        if tick in (11, 12, 13):
            raise ConnectionError("crm.example answered with 502")
        await asyncio.sleep(5 if tick == 7 else 0.1)

    @yard.cron("*/3 * * * * *", name="stock-count")
    @yard.job(queue="reports")
    async def count_stock(ctx: Context) -> None:
        await asyncio.sleep(random.choice([0.3, 0.4, 0.5, 5]))


SCAN = {
    "id": "scan-catalogue",
    "version": 3,
    "description": "Reads a shop and stores its products",
    "platform": "catalogue",
    "params": {"shop": {"type": "string", "default": "acme"}},
    "steps": [
        {"id": "list-pages", "kind": "fetch_page", "input": {"url": "${params.shop}/list"}},
        {"id": "products", "kind": "fetch_page", "needs": ["list-pages"], "input": {"url": "${params.shop}/products"}},
        {"id": "prices", "kind": "fetch_page", "needs": ["list-pages"], "input": {"url": "${params.shop}/prices"}},
        {"id": "reviews", "kind": "fetch_page", "needs": ["list-pages"], "input": {"url": "${params.shop}/reviews"}},
        {"id": "store", "kind": "store_products", "needs": ["products", "prices"], "input": {"pages": [1, 2]}},
        {"id": "report", "kind": "store_products", "needs": ["store", "reviews"], "input": {"pages": [1]}},
    ],
    "on_failure": [{"id": "alert", "kind": "fetch_page", "input": {"url": "alerts"}}],
}


async def write_history(yard: Jobyard) -> None:
    """An hour and a day of chart history, as a worker writes it."""
    rng = random.Random(3)
    rates = {"exports": 0.7, "mail": 21.0, "images": 2.3, "reports": 0.3}
    now = await yard.store.now()
    for resolution in RESOLUTIONS.values():
        seconds = resolution.interval_ms / 1000
        # The shop takes a moment to open.
        share_so_far = min(1, (now - resolution.interval_of(now)) / resolution.interval_ms + 0.4)
        for back in range(resolution.points, -1, -1):
            interval = resolution.interval_of(now) - back * resolution.interval_ms
            wave = (1 + 0.12 * math.sin(back / 9) + rng.uniform(-0.06, 0.06)) * (1 if back else share_so_far)
            tallies = {name: tally(rng, name, rate * seconds * wave) for name, rate in rates.items()}
            await append_entry(yard.store, resolution, ChartEntry(interval, tallies), now)


def tally(rng: random.Random, name: str, number: float) -> QueueTally:
    whole = round(number)
    samples, median, spread = {
        "exports": (1, 60.0, 0.3), "mail": (60, 0.003, 0.4), "images": (8, 0.3, 0.8), "reports": (2, 0.6, 0.6),
    }[name]  # fmt: skip
    waits = Counter(bucket_of(rng.lognormvariate(math.log(median), spread)) for _ in range(min(samples, whole)))
    failed = sum(rng.random() < 0.0005 for _ in range(whole))
    return QueueTally(started=whole, finished=whole, failed=failed, waits=dict(waits), runs={})


async def run_workflows(api: ApiServer) -> None:
    """Start a run of the workflow every few seconds."""
    definition = parse_workflow(json.dumps(SCAN), file="workflows/scan-catalogue.json")
    api.dependencies.workflows = WorkflowCatalog({definition.id: definition}, ("catalogue",))
    async with api.client("operator") as client:
        for shop_name in itertools.cycle(["soylent", *SHOPS]):
            body = {"workflow_id": definition.id, "params": {"shop": shop_name}}
            response = await client.post("/api/v2/workflows/execute", json=body)
            assert response.status_code == 202, response.text
            await asyncio.sleep(4)


async def fill(yard: Jobyard) -> None:
    """Waiting jobs of many groups, and a queue that no worker serves."""
    for name, number in SHOPS.items():
        for each in range(number):
            await export(yard, name, each)
    for each in range(40):
        await yard.enqueue("sync_contact", {"contact": 1000 + each, "region": "eu"}, queue="crm-sync")
    for each in range(21):
        await yard.enqueue("charge_card", {"order": 7000 + each})
    for each in range(9):
        await yard.enqueue("make_thumbnail", {"path": f"img/{4100 + each}.webp"})
    for each in range(4):
        await yard.enqueue("render_invoice", {"invoice": 88_000 + each})
    for each in range(6):
        await yard.enqueue("notify_courier", {"parcel": 52_000 + each})
    await yard.store.set_limit("exports", "umbrella", 2)
    await yard.store.set_limit("exports", "soylent", 1)
    await yard.store.set_limit("exports", "massive", 0)


async def export(yard: Jobyard, name: str, number: int) -> None:
    payload = {
        "shop": name,
        "since": f"2026-11-{1 + number % 28:02d}",
        "format": "csv" if number % 3 else "xlsx",
        "order_id_from": 9007199254740993 + number,
        "api_token": "s3cret",
    }
    priority = 5 if number % 11 == 0 else 0
    await yard.enqueue("export_orders", payload, group=name, priority=priority, tags=["billing"])


async def feed(yard: Jobyard) -> None:
    number = 0
    while True:
        number += 1
        for _ in range(3):
            await yard.enqueue("send_mail", {"to": f"customer{number}@example.com", "template": "receipt"})
        if number % 3 == 0:
            await yard.enqueue("resize", {"path": f"img/{number}.png", "width": 640}, group=f"shop-{number % 4}")
        if number % 20 == 0:
            await export(yard, random.choice(["globex", "acme", "stark", "initech"]), number)
        if number % 60 == 0:
            await yard.enqueue("nightly_report", {})
        await asyncio.sleep(0.12)


async def run_github_jobs(runners: DashboardRunners) -> None:
    """Some organizations have more jobs than runners, and one has a job that no profile serves."""
    names = ("build", "unit tests", "lint", "browser tests", "package", "deploy to staging")
    numbers = {"acme": 14, "globex": 9, "initech": 3, "hooli": 5}
    runners.queue("hooli", "train model", labels=("self-hosted", "gpu"))
    for org, number in numbers.items():
        for each in range(number):
            runners.queue(org, names[each % len(names)], seconds=random.uniform(20, 90))
    while True:
        await asyncio.sleep(9)
        for org in ("acme", "globex", "initech"):
            runners.queue(org, random.choice(names), seconds=random.uniform(20, 90))


@asynccontextmanager
async def lively_shop() -> AsyncIterator[tuple[ApiServer, str]]:
    """The server of a busy shop, and its address."""
    random.seed(7)
    yard = shop()
    async with yard:
        await fill(yard)
        await write_history(yard)
        queues = ["exports", "mail", "images", "reports", "catalogue", "default"]
        async with (
            yard.worker(concurrency=24, queues=queues, lease=3, shutdown_timeout=0.1),
            yard.scheduler(shortest_interval=1),
        ):
            settings = ServerSection(environment="production")
            api = ApiServer(yard.store, ALL_ROUTES, settings, job_factory=job_factory(yard, has_app=True))
            feeders = [asyncio.create_task(feed(yard)), asyncio.create_task(run_workflows(api))]
            async with (
                serving(api.app) as url,
                dashboard_runners(
                    api, url, ("acme", "globex", "initech", "hooli"), max_total=12, max_per_org=4
                ) as runners,
                private_daemon(slots=2, languages=["python", "javascript", "c"]) as daemon,
                program_worker(api, daemon, queues=["code"]),
            ):
                feeders.append(asyncio.create_task(run_github_jobs(runners)))
                try:
                    yield api, url
                finally:
                    api.dependencies.draining.set()
                    for feeder in feeders:
                        feeder.cancel()
                        with contextlib.suppress(asyncio.CancelledError):
                            await feeder
