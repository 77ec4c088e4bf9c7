"""Scan a local web shop on eight platforms: `python examples/product-scanner/run.py`, or `make scanner`."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from jobyard.api.schemas.workflows import WorkflowRunView
from jobyard.app.process_manager import wait_up_to
from jobyard.client import Client
from jobyard.client.operations import RemoteOperations

EXAMPLE = Path(__file__).resolve().parent
ROOT = EXAMPLE.parent.parent
sys.path.insert(0, str(EXAMPLE))

from local_run.live_view import REFRESH_SECONDS, watch  # noqa: E402  # the folder of the example is not a package
from local_run.load import mixed_load  # noqa: E402
from local_run.processes import Ended, Processes, Settings  # noqa: E402
from local_run.summary import print_findings, print_summary, summarize, total  # noqa: E402
from scanner import browser, database  # noqa: E402
from scanner.shop.catalogue import Catalogue  # noqa: E402
from scanner.sites import BROWSER, PLATFORMS, SITES  # noqa: E402

RENDERED = tuple(site for site, how in SITES.items() if how == BROWSER)
STOPPING = "Stopping: running jobs have 5 seconds to finish, the rest stays in the store."
INTERRUPTED = 130  # the exit code of a program that Ctrl-C stopped


def main(words: Sequence[str] | None = None, console: Console | None = None) -> int:
    settings = read_settings(words)
    console = console or Console(highlight=False, soft_wrap=True)
    prepare(settings)
    processes = Processes(settings, console.print)
    try:
        return asyncio.run(run(settings, processes, console))
    except Ended as error:
        console.print(f"Error: {error}", markup=False, style="red")
        return 1
    except KeyboardInterrupt:  # before the event loop listened
        return INTERRUPTED
    finally:
        processes.stop()


def read_settings(words: Sequence[str] | None) -> Settings:
    parser = argparse.ArgumentParser(prog="run.py", description=__doc__)
    parser.add_argument("--pages", type=positive, default=3, help="of the listing of each site  [default: 3]")
    parser.add_argument("--per-page", type=positive, default=5, help="products on each page  [default: 5]")
    parser.add_argument("--seed", type=int, default=1, help="another one makes another shop  [default: 1]")
    parser.add_argument("--store", help="where the jobs are: redis://… or postgresql://…  [default: a SQLite file]")
    rendering = f"whose pages Chromium renders  [default: {','.join(RENDERED)}]"
    parser.add_argument("--render", metavar="SITES", type=sites, default=RENDERED, help=rendering)
    parser.add_argument("--stay", action="store_true", help="stay up after the summary, for more jobs, until Ctrl-C")
    parser.add_argument(
        "--folder", type=Path, default=ROOT / "run/scanner", help="for databases and logs  [default: run/scanner]"
    )
    given = parser.parse_args(words)
    folder = given.folder.resolve()
    store = given.store or f"sqlite:///{folder / 'jobs.db'}"
    catalogue = Catalogue(given.seed, given.pages, given.per_page)
    rendered = () if browser.program() is None else given.render
    return Settings(folder, store, catalogue, rendered, given.stay)


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def sites(text: str) -> tuple[str, ...]:
    names = tuple(filter(None, text.split(",")))
    for name in names:
        if name not in RENDERED:
            raise argparse.ArgumentTypeError(f"{name} is not one of {', '.join(RENDERED)}")
    return names


def prepare(settings: Settings) -> None:
    """Start from the same state each time: what an earlier run has left is removed."""
    settings.folder.mkdir(parents=True, exist_ok=True)
    for pattern in ("jobs.db*", "products.db*", "*.log", "*.pid"):
        for path in settings.folder.glob(pattern):
            path.unlink()


async def run(settings: Settings, processes: Processes, console: Console) -> int:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    shop = processes.start_shop()
    store_yesterday(settings, shop)
    url, token = processes.start_server(), processes.token
    processes.start_workers()
    announce(settings, console, shop, url, token)
    async with Client(url, token) as client:
        operations = RemoteOperations(client)
        if not await workers_ready(operations, processes, stop):
            return INTERRUPTED
        began = time.monotonic()
        load = mixed_load(settings.catalogue, shop)
        job_ids = [await client.run_workflow(name, params, priority=priority) for name, params, priority in load]
        console.print(f"{len(job_ids)} jobs are submitted. Ctrl-C stops everything.\n")
        await watch(operations, job_ids, console, stop, processes.check)
        if stop.is_set():
            console.print(STOPPING)
            return INTERRUPTED
        seconds = time.monotonic() - began
        rows = summarize([await read_run(client, job_id) for job_id in job_ids])
    console.print()
    print_summary(console, rows)
    console.print(f"\nAll in {seconds:.1f} s, in which jobs ran for {total(rows).seconds:.1f} s.")
    print_findings(console, settings.database)
    if settings.stays:
        console.print("Everything stays up for more jobs. Ctrl-C stops it.")
        while not stop.is_set():
            processes.check()
            await wait_up_to(REFRESH_SECONDS, stop)
        console.print(STOPPING)
    return 0


def store_yesterday(settings: Settings, shop: str) -> None:
    """The products that an earlier scan has found, for the scans of this run to compare with."""
    products = [product for site in SITES for product in settings.catalogue.yesterday(site)]
    database.create(str(settings.database), ({**asdict(each), "url": shop + each.path} for each in products))


def announce(settings: Settings, console: Console, shop: str, url: str, token: str) -> None:
    console.print(f"The shop is at {shop} (look at {shop}/oliveyoung/), the jobyard server at {url}.")
    if settings.rendered:
        console.print(f"Chromium renders the pages of {', '.join(settings.rendered)}.")
    if browser.program() is None:
        console.print("Chromium is not installed, or the package playwright is not: no pages are rendered.")
    fetched = [site for site in RENDERED if site not in settings.rendered]
    if fetched:
        console.print(f"The pages of {', '.join(fetched)} are fetched as HTML.")
    console.print(f"The sites {', '.join(site for site in SITES if site not in RENDERED)} have a JSON API.")
    console.print(f"{len(PLATFORMS)} workers start, one for each platform. In another terminal you can use:")
    console.print(f"  export JOBYARD_SERVER={url} JOBYARD_TOKEN={token}", markup=False)


async def workers_ready(operations: RemoteOperations, processes: Processes, stop: asyncio.Event) -> bool:
    """Wait for all of them; False if the run is stopped before."""
    while not stop.is_set():
        processes.check()
        if len(await operations.workers()) >= len(PLATFORMS):
            return True
        await wait_up_to(REFRESH_SECONDS, stop)
    return False


async def read_run(client: Client, job_id: str) -> tuple[WorkflowRunView, int]:
    """The run, and its retries: how many attempts of its steps and items were followed by another one."""
    retries = [entry async for entry in client.history(job_id) if entry.part.startswith("try")]
    return await client.workflow_run(job_id), len(retries)


if __name__ == "__main__":
    sys.exit(main())
