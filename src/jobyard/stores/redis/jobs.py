"""Get, find, change and prune jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jobyard.domain.job import Job, State
from jobyard.domain.text import without_nul
from jobyard.ports.admin_store import CLOCK_SET_BACK, Action, Changed, Filter, Page
from jobyard.stores._shared.cursor import decode_cursor
from jobyard.stores._shared.limits import DEFAULT_CANCEL_REASON
from jobyard.stores.redis.client import RedisClient
from jobyard.stores.redis.codec import CODES, as_string, encode_queue
from jobyard.stores.redis.job_view import job_view
from jobyard.stores.redis.notifier import RedisNotifier

# Jobs examined for one page; a filter that matches few returns short pages with a cursor.
MAX_EXAMINED = 20_000
JOBS_PER_BLOCK, MAX_BLOCKS = 1_000, 100
# Per command: more would block the server for other clients.
EXAMINED_PER_COMMAND = 2_000
ROWS_PER_COMMAND = 500
OTHER_ENDS = (State.FAILED, State.TIMEOUT, State.CANCELLED)
BYTES_SEARCHED_PER_COMMAND = 2 << 20  # when a text is searched


class RedisJobs:
    def __init__(self, client: RedisClient, notifier: RedisNotifier) -> None:
        self._client = client
        self._notifier = notifier

    async def get(self, job_id: str) -> Job | None:
        parts = await self._client.call("get", {"id": job_id})
        return job_view(parts) if parts else None

    async def find(self, where: Filter, limit: int = 50, cursor: str | None = None) -> Page:
        request = _encode_filter(where)
        before = 1 << 52 if cursor is None else decode_cursor(cursor)
        jobs: list[Job] = []
        examined = 0
        # A block that may hold a match usually does, so this many of them fill the page.
        most = MAX_EXAMINED if where.searches else max(MAX_EXAMINED, min(MAX_BLOCKS, limit + 1) * JOBS_PER_BLOCK)
        while True:
            batch = {"before": before, "rows": min(limit - len(jobs), ROWS_PER_COMMAND)}
            last, rows = await self._client.call("find", request | batch)
            found = (job_view(row, full=False) for row in rows)
            jobs += [job for job in found if _matches(where, job)]
            examined += EXAMINED_PER_COMMAND
            if last < 0:
                return Page(tuple(jobs), None)
            before = last
            if len(jobs) >= limit or examined >= most:
                return Page(tuple(jobs), str(last))

    async def change(
        self,
        action: Action,
        job_ids: Sequence[str],
        *,
        reason: str = "",
        priority: int = 0,
        unless_requested: bool = False,
    ) -> Changed:
        word = "cancel_unless_requested" if action is Action.CANCEL and unless_requested else str(action)
        request: dict[str, Any] = {"action": word, "ids": list(job_ids), "priority": priority}
        request["reason"] = without_nul(reason or DEFAULT_CANCEL_REASON)
        changed, unchanged = await self._client.call("change", request)
        if action is Action.CANCEL and changed:
            self._notifier.note_cancel()
        return Changed(tuple(job_id.decode() for job_id in changed), tuple(job_id.decode() for job_id in unchanged))

    async def prune(self, limit: int = 1000) -> int:
        return int(await self._client.call("prune", {"limit": limit}))


def _encode_filter(where: Filter) -> dict[str, Any]:
    """The conditions that the server checks; `_matches` checks the others."""
    found: dict[str, Any] = {"examined": EXAMINED_PER_COMMAND, "searched": BYTES_SEARCHED_PER_COMMAND}
    if where.created_after is not None:
        found |= {"after": float(where.created_after), "stop_at": float(where.created_after - CLOCK_SET_BACK)}
    if where.created_before is not None:
        found["before_time"] = float(where.created_before)
        found["newest"] = float(where.created_before + CLOCK_SET_BACK)
    if where.searches:
        found["needle"] = as_string(where.needle())
    if where.kind is not None:
        found["kind"] = where.kind
    if where.queue is not None:
        found["queue"] = encode_queue(where.queue)
    if where.group is not None:
        found["group"] = where.group
    if where.states is not None:
        found["states"] = {str(CODES[state]): True for state in where.states}
    if where.ids is not None:
        found["ids"] = list(dict.fromkeys(where.ids))
    elif where.unique_key is not None:
        found["index"] = f"u{where.unique_key}"
    elif where.tag is not None:
        found["index"] = f"t{where.tag}"
    else:
        found |= _state_index(where)
        found["contents"] = _contents(where)
    return found


def _state_index(where: Filter) -> dict[str, Any]:
    """Where jobs of these states are listed; waiting ones are not."""
    states = where.states
    if states is None or State.PENDING in states:
        return {}
    running = ["leases"] if State.RUNNING in states else []
    ended = ["completed"] if State.COMPLETED in states else []
    ended += ["failed"] if any(state in OTHER_ENDS for state in states) else []
    return {"hashes": running, "ended": ended, "max_in_hashes": MAX_EXAMINED}


def _contents(where: Filter) -> list[list[str]]:
    """Names in the contents of a block, of each list of which it must hold one; see `contents` in `_queue_line.lua`."""
    found: list[list[str]] = []
    if where.group:
        found.append([f"g{where.group}"])
    if where.kind is not None:
        found.append([f"k{where.kind}"])
    return found


def _matches(where: Filter, job: Job) -> bool:
    return (
        (where.kind is None or job.kind == where.kind)
        and (where.tag is None or where.tag in job.tags)
        and (where.unique_key is None or job.unique_key == where.unique_key)
        and (where.ids is None or job.id in where.ids)
        and (not where.searches or where.matches(job.created_at, bytes(job.payload)))
    )
