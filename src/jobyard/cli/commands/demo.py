"""`jobyard demo`: features to watch, with fakes of the services that they need."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Coroutine, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from jobyard.cli.command_group import CommandGroup
from jobyard.cli.session import Session, async_command
from jobyard.domain.text import counted
from jobyard.errors import ConfigurationError, JobyardError, ServerUnavailable

if TYPE_CHECKING:
    from jobyard.client import Client
    from jobyard.demo.runner_world import RunnerWorld

T = TypeVar("T")
REFRESH_SECONDS = 0.25
START_SECONDS = 30.0
STOP_SECONDS = 15.0
# The last runners are gone a moment after their jobs; if one is not, its manager is in trouble.
DRAIN_SECONDS = 30.0
MANAGER_LOG = "manager.log"


class DemoScenario(NamedTuple):
    about: str
    jobs: dict[str, int]
    limits: dict[str, int]


SCENARIOS = {
    "default": DemoScenario(
        "157 jobs of three organizations, at most 10 runners each and 100 in all: 30 run, 127 wait",
        {"acme": 35, "beta": 50, "corp": 72},
        {},
    ),
    "limits": DemoScenario(
        "the same jobs with limits of their own, 25 for acme and 50 for beta: 85 run",
        {"acme": 35, "beta": 50, "corp": 72},
        {"acme": 25, "beta": 50},
    ),
}


@click.group(cls=CommandGroup)
def demo() -> None:
    """Watch a feature at work, on fakes of the services that it needs.

    \b
    Example:
      jobyard demo runners
    """


@demo.command("runners")
@click.option("--scenario", type=click.Choice(sorted(SCENARIOS)), default="default", show_default=True)
@click.option(
    "--job-seconds", type=click.FloatRange(0.1, 600), default=4.0, show_default=True, help="How long a job runs."
)
@click.option("--keep-running", is_flag=True, help="Keep everything running after the last job, until Ctrl-C.")
@async_command
async def demo_runners(session: Session, scenario: str, job_seconds: float, keep_running: bool) -> None:
    """Run GitHub jobs of three organizations on runners in a cluster.

    A fake GitHub Enterprise Server and a fake Kubernetes API run on this machine, and the real manager in front of
    them: webhooks, limits, fairness and recovery are those of a production set-up. Nothing else is needed.

    \b
    Example:
      jobyard demo runners --scenario limits
    """
    chosen = SCENARIOS[scenario]
    with ending_by_sigterm(), tempfile.TemporaryDirectory(prefix="jobyard-demo-") as folder:
        async with started(Path(folder), chosen) as (world, client, process):
            session.echo(f"{chosen.about}.")
            session.echo(
                f"GitHub {world.github_url}/_control/state, cluster {world.kubernetes_url}, jobyard {client.url}"
            )
            for org, count in chosen.jobs.items():
                world.queue_jobs(org, count, (job_seconds * 0.75, job_seconds * 1.25))
            watching = watch(session, world, client, keep_running=keep_running)
            summary = await while_running(process, Path(folder) / MANAGER_LOG, watching)
    if session.as_json:
        session.print_json(summary)
    else:
        session.echo(
            f"{counted(summary['jobs'], 'job')} ran in {summary['seconds']:.0f} s; "
            f"at most {summary['most_running']} runners at the same time."
        )


@contextlib.contextmanager
def ending_by_sigterm() -> Iterator[None]:
    """End the block by SIGTERM as by Ctrl-C: otherwise the manager would be left running."""
    own = asyncio.current_task()
    assert own is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, own.cancel)
    try:
        yield
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


@contextlib.asynccontextmanager
async def started(folder: Path, chosen: DemoScenario) -> AsyncIterator[tuple[RunnerWorld, Client, Process]]:
    """The fakes in this process, and `jobyard up` in a process of its own."""
    try:
        from jobyard.client import Client  # noqa: PLC0415  # its package is an extra
        from jobyard.demo.runner_world import RunnerWorld  # noqa: PLC0415
        from jobyard.server.server import listen  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"The demo needs the Python package {error.name}, which is not installed. "
            "Install it with: pip install 'jobyard[server,github,client]'"
        ) from error
    world = RunnerWorld(tuple(chosen.jobs))
    async with world.serving():
        with listen("127.0.0.1", 0) as free:
            port = free.getsockname()[1]
        url, secret = f"http://127.0.0.1:{port}", secrets.token_hex(16)
        hooks = world.add_hooks(f"{url}/webhooks/github", secret)
        file = world.write_configuration(folder, hooks, secret, org_limits=chosen.limits)
        async with manager(folder, file, port) as process, Client(url) as client:
            log = folder / MANAGER_LOG
            await while_running(process, log, until_ready(client, log))
            yield world, client, process


@contextlib.asynccontextmanager
async def manager(folder: Path, file: Path, port: int) -> AsyncIterator[Process]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JOBYARD_")}
    command = [sys.executable, "-m", "jobyard", "--config", str(file), "--store", f"sqlite:///{folder}/jobs.db"]
    command += ["up", "--insecure", "--port", str(port), "--no-scheduler"]
    with (folder / MANAGER_LOG).open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=DEVNULL, stdout=log, stderr=log, env=environment, cwd=folder, start_new_session=True
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


async def while_running(process: Process, log: Path, work: Coroutine[Any, Any, T]) -> T:
    """The result of the work. Raises ServerUnavailable as soon as the process ends: the client would try for longer."""
    working, ending = asyncio.ensure_future(work), asyncio.ensure_future(process.wait())
    try:
        await asyncio.wait((working, ending), return_when=asyncio.FIRST_COMPLETED)
        if not ending.done():
            return working.result()
        code = ending.result()
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
        said = last_line(log) if code > 0 else ""
        raise ServerUnavailable(f"The manager (process {process.pid}) {how}{f': {said}' if said else '.'}")
    finally:
        for task in (working, ending):
            task.cancel()
        await asyncio.gather(working, ending, return_exceptions=True)


async def until_ready(client: Client, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            await client.runner_orgs()
        except JobyardError as error:
            if time.monotonic() > deadline:
                raise ConfigurationError(f"The manager did not start: {last_line(log) or error}") from error
        else:
            return
        await asyncio.sleep(REFRESH_SECONDS)


def last_line(log: Path) -> str:
    return log.read_text("utf-8", "replace").strip().rpartition("\n")[2]


async def watch(session: Session, world: RunnerWorld, client: Client, *, keep_running: bool) -> dict[str, Any]:
    """Show the organizations until all jobs and runners have ended; returns what was seen."""
    from jobyard.cli.render.runners_live import live_organizations  # noqa: PLC0415

    began, most, jobs, ended_at = time.monotonic(), 0, world.unfinished, 0.0
    with live_organizations(session.console, visible=not session.as_json) as show:
        while True:
            found = await client.runner_orgs()
            show(found, world.unfinished, time.monotonic() - began)
            running = found.totals.running if found.totals else 0
            most = max(most, running)
            if not world.unfinished and not keep_running:
                ended_at = ended_at or time.monotonic()
                if not running or time.monotonic() - ended_at > DRAIN_SECONDS:
                    break
            await asyncio.sleep(REFRESH_SECONDS)
    return {"jobs": jobs, "seconds": time.monotonic() - began, "most_running": most, "running": running}
