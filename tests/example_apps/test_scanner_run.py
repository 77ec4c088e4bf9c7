"""examples/product-scanner as a newcomer runs it: all platforms, a worker that is killed, and Ctrl-C."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.house.repository import ROOT
from tests.story.up import alive
from tests.support import PATIENCE_SECONDS

from jobyard import Filter, Jobyard, State
from jobyard.domain.job import Ending, Job
from scanner.browser import program
from scanner.shop.catalogue import Catalogue, Fault, Product
from scanner.sites import PLATFORMS, SITES, site_of

EXAMPLE = ROOT / "examples/product-scanner"
CATALOGUE = Catalogue(seed=1, pages=2, per_page=3)
AT_MOST = 2  # products that a scan reads side by side
KILLED = "hwahae"

pytestmark = [pytest.mark.story, pytest.mark.timeout(300)]


class Visit(NamedTuple):
    """A request that the shop has answered."""

    run_id: str
    path: str
    began: float
    ended: float
    status: int
    is_browser: bool


class Run:
    """The command, and what it leaves in its folder."""

    def __init__(self, folder: Path, process: subprocess.Popen[str], output: Path) -> None:
        self.folder = folder
        self.process = process
        self._output = output

    @property
    def said(self) -> str:
        return self._output.read_text("utf-8")

    def pid(self, platform: str) -> int:
        return int((self.folder / f"{platform}.pid").read_text())

    def visits(self) -> list[Visit]:
        lines = (self.folder / "shop.log").read_text("utf-8").splitlines()
        found = []
        for line in map(json.loads, lines):
            [run_id] = re.findall(r"\((\S+)\)", line["visitor"])
            found.append(Visit(run_id, line["path"], line["began"], line["ended"], line["status"], line["is_browser"]))
        return sorted(found, key=lambda visit: visit.began)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.folder / "products.db")) as connection:
            return connection.execute(query).fetchall()

    async def until(self, what: str, holds: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            found = holds()
            found = await found if asyncio.iscoroutine(found) else found
            if found:
                return found
            assert self.process.poll() is None, self.said
            assert time.monotonic() < deadline, f"not in time: {what}\n{self.said}"
            await asyncio.sleep(0.02)

    async def end(self) -> int:
        return await asyncio.to_thread(self.process.wait, PATIENCE_SECONDS)


@contextmanager
def started(folder: Path, *words: str) -> Iterator[Run]:
    output = folder / "output"
    size = ("--pages", str(CATALOGUE.pages), "--per-page", str(CATALOGUE.per_page))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JOBYARD")}
    with output.open("w") as out:
        process = subprocess.Popen(
            [sys.executable, str(EXAMPLE / "run.py"), "--folder", str(folder), *size, *words],
            stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=environment, text=True,
        )  # fmt: skip
    try:
        yield Run(folder, process, output)
    finally:
        if process.poll() is None:
            process.kill()  # its processes end with it
        process.wait()


def submit(script: str, *words: str, said: str) -> str:
    """Run a submit script with the addresses that the command printed; returns the id of the job."""
    [(url, token)] = re.findall(r"JOBYARD_SERVER=(\S+) JOBYARD_TOKEN=(\S+)", said)
    response = subprocess.run(
        [str(EXAMPLE / "scripts" / script), *words],
        env={"PATH": os.environ["PATH"], "JOBYARD_SERVER": url, "JOBYARD_TOKEN": token},
        capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False,
    )  # fmt: skip
    assert response.returncode == 0, response.stdout + response.stderr
    return str(json.loads(response.stdout)["data"]["job_id"])


async def kill_worker_in_a_scan(run: Run, yard: Jobyard) -> str:
    """Kill a worker that certainly has not finished its job; returns the id of the job."""

    async def scanning() -> Job | None:
        jobs = (await yard.store.find(Filter(queue=KILLED, states=(State.RUNNING,)))).jobs
        return next((job for job in jobs if job.progress is not None and job.progress.data["finished"] >= 1), None)

    while True:
        job: Job = await run.until(f"{KILLED} scans", scanning)
        pid = run.pid(KILLED)
        os.kill(pid, signal.SIGSTOP)
        stopped = await scanning()
        if stopped is not None and stopped.id == job.id:
            os.kill(pid, signal.SIGKILL)
            return job.id
        os.kill(pid, signal.SIGCONT)


async def test_all_platforms_with_a_worker_that_is_killed_and_control_c(tmp_path: Path) -> None:
    yard = Jobyard(f"sqlite:///{tmp_path}/jobs.db")
    with started(tmp_path, "--render", "kurly", "--stay") as run:
        await run.until("jobs are submitted", lambda: "jobs are submitted" in run.said)
        async with yard:
            killed = await kill_worker_in_a_scan(run, yard)
            await run.until("all jobs have ended", lambda: "stays up" in run.said)
            assert [error.ending for error in (await yard.get(killed)).errors] == [Ending.LOST]
            jobs = {job.id: job for job in (await yard.store.find(Filter(), 100)).jobs}
            check_the_jobs(list(jobs.values()))
            check_the_visits(run.visits(), jobs, killed)
            check_the_database(run, jobs)
            check_the_summary(run.said, list(jobs.values()))
            await check_the_scripts(run, yard)
            await check_control_c(run, yard)
    assert f"The worker of {KILLED} was killed by SIGKILL." in run.said
    logs = {path.stem: path.read_text("utf-8") for path in tmp_path.glob("*.log")}
    assert "answered 500" in logs.pop("extract")  # the run that fails
    assert "Traceback" not in run.said + "".join(logs.values()), logs


def check_the_jobs(jobs: Sequence[Job]) -> None:
    """Every platform had jobs, one ran at a time, and only the run whose product is broken has failed."""
    for platform in PLATFORMS:
        times = sorted((job.started_at or 0, job.finished_at or 0) for job in jobs if job.queue == platform)
        assert len(times) >= 2, platform
        assert all(before[1] <= after[0] for before, after in pairwise(times)), (platform, times)
    [failed] = (job for job in jobs if job.state is not State.COMPLETED)
    assert (failed.state, failed.queue) == (State.FAILED, "extract")
    assert failed.payload_value()["workflow_id"] == "single_product"


def check_the_database(run: Run, jobs: dict[str, Job]) -> None:
    shop = shop_url(run)
    scans = {job.id for job in jobs.values() if job.payload_value()["workflow_id"] == "scan_platform"}
    verdicts: dict[str, set[str]] = defaultdict(set)
    for run_id, url, verdict in run.rows("SELECT run_id, url, verdict FROM results"):
        if run_id in scans:
            verdicts[url].add(verdict)
    stored = {shop + each.path: each for site in SITES for each in CATALOGUE.yesterday(site)}
    for product in CATALOGUE.all_products():
        url = shop + product.path
        expected = verdict_of(product, stored.get(url))
        # A product that another run has scanned before is the same by then.
        assert verdicts[url] <= {expected, "same"}, (url, expected)
        assert expected in verdicts[url] or url in also_scanned_alone(shop), (url, expected)
    now = dict(run.rows("SELECT url, price FROM products"))
    for product in CATALOGUE.all_products():
        if product.fault is Fault.GONE:
            assert shop + product.path not in now
        elif product.fault is not Fault.BROKEN:
            assert now[shop + product.path] == product.price
    listed = {url for (url,) in run.rows("SELECT url FROM listed_urls")}
    assert listed == {shop + product.path for product in CATALOGUE.all_products()}
    assert len(run.rows("SELECT * FROM reports")) == 2
    [(step, error)] = run.rows("SELECT step, error FROM failures")
    assert (step, "answered 500" in error) == ("scan", True)
    for barcode, url, price in run.rows("SELECT barcode, url, price FROM best_offers"):
        offers = [each for each in CATALOGUE.all_products() if each.barcode == barcode and is_offered(each)]
        assert price == min(each.price for each in offers)
        assert url in {shop + each.path for each in offers if each.price == price}
    assert len(run.rows("SELECT * FROM best_offers")) == CATALOGUE.pages


def verdict_of(product: Product, stored: Product | None) -> str:
    if product.fault is Fault.GONE:
        return "gone"
    if product.fault is Fault.BROKEN:
        return "not scanned"
    if stored is None:
        return "new"
    if stored.price != product.price:
        return "price changed"
    return "same" if stored.in_stock == product.in_stock else "stock changed"


def is_offered(product: Product) -> bool:
    return product.in_stock and product.fault not in (Fault.GONE, Fault.BROKEN)


def also_scanned_alone(shop: str) -> set[str]:
    """By `single_product`, before or after the scan of its page."""
    return {shop + each.path for each in CATALOGUE.products("ably") if each.fault is Fault.FLAKY}


def shop_url(run: Run) -> str:
    [url] = re.findall(r"The shop is at (\S+)", run.said)
    return str(url)


def check_the_visits(visits: Sequence[Visit], jobs: dict[str, Job], killed: str) -> None:
    """The shop as a witness: it never saw two jobs of a platform at a time, nor a finished step twice."""
    for platform in PLATFORMS:
        busy_until, last = 0.0, ""
        for visit in visits:
            if jobs[visit.run_id].queue == platform:
                assert visit.run_id == last or visit.began >= busy_until, (platform, visit)
                busy_until, last = max(busy_until, visit.ended), visit.run_id
    answered: dict[tuple[str, str], int] = defaultdict(int)
    for visit in visits:
        if visit.status in (200, 404):
            answered[visit.run_id, visit.path] += 1
    again = {key for key, count in answered.items() if count > 1}
    # Only what was interrupted runs again: products of the killed run, as many as are read side by side.
    assert {run_id for run_id, _ in again} <= {killed}
    assert len(again) <= AT_MOST
    assert all("/api/products/" in path for _, path in again), "the listing was read once"
    rendered = [visit for visit in visits if "/products/" in visit.path and visit.is_browser]
    assert {site_of(visit.path) for visit in rendered} == ({"kurly"} if program() is not None else set())


def check_the_summary(said: str, jobs: Sequence[Job]) -> None:
    rows = {words[0]: words[1:] for words in (line.split() for line in said.splitlines()) if len(words) == 6}
    assert rows["platform"] == ["jobs", "steps", "retries", "failures", "seconds"]
    for platform in PLATFORMS:
        assert int(rows[platform][0]) == sum(job.queue == platform for job in jobs)
    for site in SITES:
        # The flaky product once, and the broken one twice, unless another platform has asked the flaky one before.
        assert int(rows[site][2]) in (2, 3)
    failures = {platform: int(rows[platform][3]) for platform in PLATFORMS}
    assert failures == {**dict.fromkeys(PLATFORMS, 0), "extract": 1}


async def check_the_scripts(run: Run, yard: Jobyard) -> None:
    said = run.said
    submitted = {
        "default": submit("submit-default.sh", said=said),
        "extract": submit("submit-extract.sh", shop_url(run) + CATALOGUE.products("zigzag")[0].path, said=said),
        "zigzag": submit("submit-zigzag.sh", "2", said=said),
    }
    for platform, job_id in submitted.items():
        job = await yard.job_handle(job_id).wait(PATIENCE_SECONDS)
        assert (job.queue, job.state) == (platform, State.COMPLETED)


async def check_control_c(run: Run, yard: Jobyard) -> None:
    """Everything ends, and no job is left running: one that does not finish in time returns to its queue."""
    job_id = submit("submit-musinsa.sh", "1", said=run.said)

    async def is_running() -> bool:
        return (await yard.get(job_id)).state is State.RUNNING

    await run.until("a job runs", is_running)
    run.process.send_signal(signal.SIGINT)
    assert await run.end() == 0, run.said
    assert run.said.rstrip().endswith("the rest stays in the store.")
    assert not any(alive(run.pid(platform)) for platform in PLATFORMS)
    assert (await yard.get(job_id)).state in (State.COMPLETED, State.PENDING)
