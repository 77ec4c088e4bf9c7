"""Takes over jobs that an older manager kept in Redis lists: `pending:{org}`, or any key with "pending" in it.

An entry is a JSON object with job_id, run_id, job_name, repo_full_name, labels and org_name, and optionally created_at.
The lists are only read.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

import msgspec

from jobyard.domain.instant import Instant, instant
from jobyard.domain.runners.github_job import GitHubJob, GitHubJobState, JobEvent
from jobyard.domain.runners.profile import RunnerProfile, profile_for
from jobyard.domain.text import without_nul
from jobyard.github.api import GitHubApi
from jobyard.github.errors import GitHubError
from jobyard.github.event_ingest import EventIngest

DEFAULT_PATTERN = "*pending*"
PAGE = 500
# Epoch times above this are in milliseconds.
MILLISECONDS_FROM = 10**11


class TakeoverResult(StrEnum):
    NEW = "new"  # would be entered, by a dry run
    ENTERED = "entered"
    KNOWN = "known"  # the manager has it already
    OVER = "over"  # GitHub says that it needs no runner any more
    UNSERVED = "unserved"  # no profile has its labels
    INVALID = "invalid"  # the entry cannot be read
    FAILED = "failed"  # GitHub could not be asked


class PendingEntry(NamedTuple):
    key: str
    job: GitHubJob | None  # None: the entry is invalid
    problem: str = ""


class TakenOver(NamedTuple):
    entry: PendingEntry
    result: TakeoverResult
    why: str = ""


class RedisLists(Protocol):
    """The part of redis.asyncio.Redis that is needed."""

    def scan_iter(self, match: str, count: int, _type: str) -> AsyncIterator[bytes]: ...
    async def lrange(self, name: bytes, start: int, end: int) -> list[bytes]: ...


async def pending_entries(redis: RedisLists, pattern: str = DEFAULT_PATTERN) -> AsyncIterator[PendingEntry]:
    """The entries of all lists that match, by key, in the order of the lists."""
    keys = sorted({key async for key in redis.scan_iter(match=pattern, count=1000, _type="LIST")})
    for key in keys:
        name = key.decode("utf-8", "replace")
        start = 0
        while page := await redis.lrange(key, start, start + PAGE - 1):
            for value in page:
                yield read_entry(name, value)
            start += PAGE


def read_entry(key: str, value: bytes) -> PendingEntry:
    """
    >>> read_entry("pending:acme", b'{"job_id": 7, "repo_full_name": "acme/shop", "labels": ["a"]}').job.org_name
    'acme'
    >>> read_entry("pending:acme", b"7").problem
    'it is not a JSON object'
    """
    try:
        found = msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = None
    if not isinstance(found, dict):
        return PendingEntry(key, None, "it is not a JSON object")
    job_id, repo = _integer(found.get("job_id")), _text(found.get("repo_full_name"))
    if job_id is None:
        return PendingEntry(key, None, "it has no job_id")
    if repo.count("/") != 1 or not all(repo.split("/")):
        return PendingEntry(key, None, f"job {job_id} has no repo_full_name like acme/shop")
    labels = found.get("labels")
    words = labels.split(",") if isinstance(labels, str) else labels if isinstance(labels, list) else []
    job = GitHubJob(
        job_id=job_id,
        run_id=_integer(found.get("run_id")) or 0,
        job_name=_text(found.get("job_name")),
        repo_full_name=repo,
        org_name=_text(found.get("org_name")) or repo.partition("/")[0],
        labels=tuple(label for each in words if (label := _text(each).strip())),
        queued_at=_instant(found.get("created_at")),
    )
    return PendingEntry(key, job)


async def take_over(
    ingest: EventIngest,
    profiles: tuple[RunnerProfile, ...],
    entry: PendingEntry,
    github: GitHubApi | None,
    now: Instant,
    *,
    is_applied: bool = True,
) -> TakenOver:
    """Enter one job, unless it is known; with `github`, as GitHub describes it now. Safe to repeat."""
    job = entry.job
    if job is None:
        return TakenOver(entry, TakeoverResult.INVALID, entry.problem)
    known = await ingest.jobs.get(job.job_id)
    if known is not None and known.profile is not None:
        return TakenOver(entry, TakeoverResult.KNOWN, f"it is {known.state}")
    if github is not None:
        try:
            found = await github.job(job.repo_full_name, job.job_id)
        except GitHubError as error:
            return TakenOver(entry, TakeoverResult.FAILED, str(error))
        if found is None:
            return TakenOver(entry, TakeoverResult.OVER, "GitHub has no such job")
        if found.state not in (GitHubJobState.QUEUED, GitHubJobState.HELD_BACK):
            return TakenOver(entry, TakeoverResult.OVER, f"it is {found.state} on GitHub")
        job = found
    if profile_for(job.labels, profiles) is None:
        return TakenOver(
            entry, TakeoverResult.UNSERVED, f"no profile has the labels {', '.join(job.labels) or '(none)'}"
        )
    if not is_applied:
        return TakenOver(entry, TakeoverResult.NEW)
    # One that was not checked is checked by the manager, as its entry may be old.
    is_answer = github is not None
    await ingest.receive(JobEvent(action=job.state.action, job=job, received_at=now, is_answer=is_answer))
    return TakenOver(entry, TakeoverResult.ENTERED)


def _integer(value: Any) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 18:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 53 else None


def _text(value: Any) -> str:
    return without_nul(value)[:1000] if isinstance(value, str) else ""


def _instant(value: Any) -> Instant:
    """RFC 3339 text, or seconds or milliseconds since 1970; 0 if it is neither."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e14:
        return round(value if value >= MILLISECONDS_FROM else value * 1000)
    try:
        return instant(value) if isinstance(value, str) else 0
    except ValueError:
        return 0
