"""`jobyard runners import`: take over the waiting jobs of an older manager from its Redis lists."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import click
from rich.markup import escape

from jobyard.app.runners import build_github
from jobyard.cli.render.output import name as shown
from jobyard.cli.runner_access import configured
from jobyard.cli.session import Session, async_command
from jobyard.config.sections import RunnersSection
from jobyard.errors import ConfigurationError, StoreUnavailable
from jobyard.github.api import GitHubApi
from jobyard.github.event_ingest import EventIngest
from jobyard.github.takeover import DEFAULT_PATTERN, TakenOver, TakeoverResult, pending_entries, take_over
from jobyard.ports.store import Store

COLOURS = {
    TakeoverResult.NEW: "green",
    TakeoverResult.ENTERED: "green",
    TakeoverResult.INVALID: "red",
    TakeoverResult.FAILED: "red",
}
BAD = (TakeoverResult.INVALID, TakeoverResult.FAILED)
HEADINGS = ("~list", ">job", "~repository", "~name", "result", "~why")


@click.command("import")
@click.argument("url", metavar="URL")
@click.option("--pattern", default=DEFAULT_PATTERN, show_default=True, help="Which keys are lists of waiting jobs.")
@click.option("--no-check", is_flag=True, help="Do not ask GitHub whether each job is still queued.")
@click.option("--dry-run", is_flag=True, help="Only show what would be entered.")
@async_command
async def import_lists(session: Session, url: str, pattern: str, no_check: bool, dry_run: bool) -> None:
    """Take over the waiting jobs of an older manager from its Redis lists.

    URL is the address of its Redis. Reads the lists `pending:ORG`, or others that match --pattern. An entry is a JSON
    object with job_id, run_id, job_name, repo_full_name, labels and org_name, and optionally created_at. Jobs that
    GitHub no longer has queued are left out. The lists are not changed, and a second run enters nothing twice. Exit
    code 1 if an entry was invalid or could not be checked.

    \b
    Example:
      jobyard runners import redis://old-manager:6379/0 --dry-run
    """
    session.require_store()
    section = configured(session.configuration.runners)
    yard = session.yard()
    async with session.opened(yard), _github(section, is_used=not no_check) as github, _redis(url) as redis:
        found = await _take_over_all(section, yard.store, github, redis, pattern, is_applied=not dry_run)
    if session.as_json:
        session.print_json({"dry_run": dry_run, "jobs": [_document(each) for each in found]})
    else:
        session.print_table(None, HEADINGS, map(_row, found), f"No list matches {pattern}.")
        counts = Counter(each.result for each in found)
        session.echo(
            ", ".join(f"{counts[result]} {result}" for result in TakeoverResult if counts[result]) or "0 entries"
        )
    if any(each.result in BAD for each in found):
        raise click.exceptions.Exit(1)


async def _take_over_all(
    section: RunnersSection, store: Store, github: GitHubApi | None, redis: Any, pattern: str, *, is_applied: bool
) -> list[TakenOver]:
    ingest, found, seen = EventIngest(store, section.manager_settings()), [], set[int]()
    async for entry in pending_entries(redis, pattern):
        if entry.job is not None and entry.job.job_id in seen:
            continue  # several lists may have the same job
        taken = await take_over(ingest, section.profiles, entry, github, await store.now(), is_applied=is_applied)
        found.append(taken)
        seen |= {entry.job.job_id} if entry.job is not None else set()
    return found


@asynccontextmanager
async def _github(section: RunnersSection, *, is_used: bool) -> AsyncIterator[GitHubApi | None]:
    if not is_used:
        yield None
        return
    github = build_github(section)
    await github.start()
    try:
        yield github
    finally:
        await github.stop()


@asynccontextmanager
async def _redis(url: str) -> AsyncIterator[Any]:
    try:
        from redis.asyncio import Redis  # noqa: PLC0415  # an extra
        from redis.exceptions import RedisError  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            "This command needs the Python package redis, which is not installed. "
            "Install it with: pip install 'jobyard[redis]'"
        ) from error
    try:
        client = Redis.from_url(url)
    except ValueError as error:  # its message may contain the password
        raise ConfigurationError(
            "Invalid argument URL: use an address such as redis://old-manager:6379/0, or rediss:// for TLS."
        ) from error
    try:
        yield client
    except (RedisError, OSError) as error:
        raise StoreUnavailable(f"Cannot read the lists from Redis: {error}") from error
    finally:
        await client.aclose()


def _row(taken: TakenOver) -> tuple[str, ...]:
    job, colour = taken.entry.job, COLOURS.get(taken.result, "dim")
    return (
        escape(taken.entry.key),
        "-" if job is None else str(job.job_id),
        shown(None if job is None else job.repo_full_name),
        shown(None if job is None else job.job_name),
        f"[{colour}]{taken.result}[/]",
        escape(taken.why),
    )


def _document(taken: TakenOver) -> dict[str, Any]:
    job = taken.entry.job
    facts = (
        {} if job is None else {"job_id": job.job_id, "repo_full_name": job.repo_full_name, "org_name": job.org_name}
    )
    return {"list": taken.entry.key, **facts, "result": taken.result, "why": taken.why}


commands = (import_lists,)
