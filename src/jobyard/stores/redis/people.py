"""What people read and change: one job, pages of jobs, queues, groups, the facts behind an explanation, an audit."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any

from jobyard.domain.admission import Group, Queue
from jobyard.domain.explain import Standing
from jobyard.domain.job import Job, QueueSettings, State
from jobyard.errors import BadInput, JobNotFound, NotPossible
from jobyard.ports.admin_store import (
    CLOCK_SET_BACK,
    MAX_HEADS_SCANNED,
    Action,
    Changed,
    Filter,
    GroupInfo,
    Page,
    QueueAges,
    QueueInfo,
)
from jobyard.stores.redis.packing import CODES, STATES, milliseconds, queue_from, queue_name, text, unpack
from jobyard.stores.redis.scripts import command
from jobyard.stores.redis.server import Server
from jobyard.stores.redis.timekeeping import alive
from jobyard.stores.redis.viewing import seen

GET, FIND, CHANGE, CONFIGURE = command("get"), command("find"), command("change"), command("configure")
QUEUES, GROUPS, STANDING, PRUNE = command("queues"), command("groups"), command("standing"), command("prune")
AGES = command("ages")
AUDIT, AUDIT_SCHEDULES, SIGNAL = command("audit"), command("audit_schedules"), command("signal")

# An audit reads all there is; at about 10 µs per job.
AUDIT_SECONDS = 300.0
COUNTED_AT_MOST = 1000
NAMED_AT_MOST = 10
# A page looks at no more jobs than this; a filter that matches little answers short pages with a cursor.
LOOKED_AT_MOST = 20_000
# And so many per trip, so that no command keeps the server for long.
LOOKED_PER_TRIP = 2_000
ROWS_PER_TRIP = 500
SEARCHED_PER_TRIP = 2 << 20  # bytes of jobs in which a text is looked for
GROUP = Struct(">IIIddB")  # waiting, delayed, running, turn, limit, paused
QUEUE = Struct(">15d")  # settings, then counts
SETTINGS = ("max_running", "max_per_group", "max_waiting", "max_waiting_per_group")


def missing(job_id: str) -> JobNotFound:
    return JobNotFound.of(job_id)


async def get(server: Server, job_id: str) -> Job | None:
    parts = await server.run(GET, {"id": job_id})
    return seen(parts) if parts else None


async def find(server: Server, where: Filter, limit: int, cursor: str | None) -> Page:
    question = _where(where)
    before = position(cursor)
    jobs: list[Job] = []
    looked = 0
    while True:
        trip = {"before": before, "rows": min(limit - len(jobs), ROWS_PER_TRIP)}
        last, rows = await server.run(FIND, question | trip)
        found = (seen(row, whole=False) for row in rows)
        jobs += [job for job in found if _matches(where, job)]
        looked += LOOKED_PER_TRIP
        if last < 0:
            return Page(tuple(jobs), None)
        before = last
        if len(jobs) >= limit or looked >= LOOKED_AT_MOST:
            return Page(tuple(jobs), str(last))


def position(cursor: str | None) -> int:
    """
    >>> position("12")
    12
    """
    if cursor is None:
        return 1 << 52
    if not cursor.isascii() or not cursor.isdigit() or len(cursor) > 15:
        raise BadInput(f"{cursor!r} is not a cursor; use the one that the page before answered.")
    return int(cursor)


def _where(where: Filter) -> dict[str, Any]:
    """What the server looks at; the other conditions are checked here."""
    found: dict[str, Any] = {"looked": LOOKED_PER_TRIP, "searched": SEARCHED_PER_TRIP}
    if where.created_after is not None:
        found |= {"after": float(where.created_after), "past": float(where.created_after - CLOCK_SET_BACK)}
    if where.created_before is not None:
        found["before_time"] = float(where.created_before)
    if where.text is not None:
        found["needle"] = text(where.text_bytes())
    if where.queue is not None:
        found["queue"] = queue_name(where.queue)
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
    elif where.states is not None and State.PENDING not in where.states:
        running = {"leases"} if State.RUNNING in where.states else set()
        finished = {"done"} if any(state.is_final for state in where.states) else set()
        found |= {"shelves": sorted(running | finished), "shelf_most": LOOKED_AT_MOST}
    return found


def _matches(where: Filter, job: Job) -> bool:
    return (
        (where.kind is None or job.kind == where.kind)
        and (where.tag is None or where.tag in job.tags)
        and (where.unique_key is None or job.unique_key == where.unique_key)
        and (where.ids is None or job.id in where.ids)
        and (where.text is None or where.matches(job.created_at, bytes(job.payload)))
    )


async def change(server: Server, action: Action, job_ids: Sequence[str], reason: str, priority: int) -> Changed:
    question = {
        "action": str(action),
        "ids": list(job_ids),
        "reason": reason or "cancelled",
        "priority": priority,
    }
    changed, unchanged = await server.run(CHANGE, question)
    return Changed(tuple(job_id.decode() for job_id in changed), tuple(job_id.decode() for job_id in unchanged))


async def signal(server: Server, job_id: str, name: str, data: bytes) -> bool:
    answer = await server.run(SIGNAL, {"id": job_id, "name": name, "data": text(data)})
    if answer < 0:
        raise missing(job_id)
    if answer >= 10:
        raise NotPossible(f"Job {job_id} is {STATES[answer - 10]}; only a job that has not ended can be signalled.")
    return bool(answer)


async def configure(server: Server, queue: str, settings: QueueSettings) -> None:
    limits = [-1 if (limit := getattr(settings, name)) is None else limit for name in SETTINGS]
    keeps = [settings.keep_completed, settings.keep_failed, milliseconds(settings.keep_seconds)]
    await server.run(CONFIGURE, {"name": queue_name(queue), "settings": [*limits, *keeps]})


async def set_paused(server: Server, queue: str, group: str | None, paused: bool) -> None:
    question: dict[str, Any] = {"name": queue_name(queue), "paused": int(paused)}
    if group is not None:
        question["group"] = group
    await server.run(CONFIGURE, question)


async def set_limit(server: Server, queue: str, group: str, limit: int | None) -> None:
    await server.run(CONFIGURE, {"name": queue_name(queue), "group": group, "limit": -1 if limit is None else limit})


async def queues(server: Server) -> list[QueueInfo]:
    rows = await server.run(QUEUES, {})
    return sorted((_queue(queue_from(name), row) for name, row in rows), key=lambda info: info.name)


async def ages(server: Server) -> list[QueueAges]:
    rows = await server.run(AGES, {"most": MAX_HEADS_SCANNED})
    found = [
        QueueAges(
            queue=queue_from(name),
            waiting_since=int(waiting) if waiting else None,
            running_since=int(running) if running else None,
        )
        for name, waiting, running in rows
    ]
    return sorted(found, key=lambda each: each.queue)


def _queue(name: str, row: bytes) -> QueueInfo:
    values = QUEUE.unpack(row)
    *settings, keep_ms = map(int, values[:7])
    waiting, delayed, running, completed, failed, cancelled, _, paused = map(int, values[7:])
    limits = {key: None if limit < 0 else limit for key, limit in zip(SETTINGS, settings, strict=False)}
    return QueueInfo(
        name=name,
        settings=QueueSettings(
            **limits, keep_completed=settings[4], keep_failed=settings[5], keep_seconds=keep_ms / 1000
        ),
        paused=bool(paused),
        waiting=waiting,
        delayed=delayed,
        running=running,
        completed=completed,
        failed=failed,
        cancelled=cancelled,
    )


async def groups(server: Server, queue: str, limit: int, after: str | None) -> list[GroupInfo]:
    question: dict[str, Any] = {"name": queue_name(queue), "limit": limit}
    if after is not None:
        question["after"] = after
    answer = await server.run(GROUPS, question)
    if not answer:
        return []
    usual, rows = answer
    infos: list[GroupInfo] = []
    for name, row in rows:
        waiting, delayed, running, _, own, paused = GROUP.unpack_from(row)
        infos.append(
            GroupInfo(
                queue=queue,
                name=name.decode() or None,
                limit=None if own < 0 else int(own),
                effective_limit=int(own) if own >= 0 else usual if name and usual >= 0 else None,
                paused=bool(paused),
                waiting=waiting,
                delayed=delayed,
                running=running,
            )
        )
    return infos


async def standing(server: Server, job_id: str) -> Standing:
    question = {"id": job_id, "most_counted": COUNTED_AT_MOST, "most_named": NAMED_AT_MOST}
    answer = await server.run(STANDING, question)
    if not answer:
        raise missing(job_id)
    parts, (max_running, max_per_group, paused, running, turn), row, ahead, groups_ahead, holders, beats, now = answer
    job = seen(parts)
    waiting, _, group_running, group_turn, own, group_paused = GROUP.unpack_from(row)
    return Standing(
        job=job,
        now=now,
        queue=Queue(
            job.queue,
            None if max_running < 0 else max_running,
            None if max_per_group < 0 else max_per_group,
            bool(paused),
            running,
            turn,
        ),
        group=Group(
            job.group, None if own < 0 else int(own), bool(group_paused), group_running, waiting, int(group_turn)
        ),
        ahead_in_group=min(ahead, COUNTED_AT_MOST),
        groups_ahead=min(groups_ahead, COUNTED_AT_MOST),
        counts_capped=max(ahead, groups_ahead) > COUNTED_AT_MOST,
        running_ids=tuple(unpack(record)[4].id for record in holders),
        workers=sum(worker.takes(job.queue) for worker in alive(beats, now)),
    )


async def prune(server: Server, limit: int) -> int:
    removed: int = await server.run(PRUNE, {"limit": limit})
    return removed


async def audit(server: Server) -> list[str]:
    found: list[str] = []
    for name in sorted(await server.ask("SMEMBERS", f"{server.prefix}:queues")):
        sentences = await server.run(AUDIT, {"name": name.decode()}, patience=AUDIT_SECONDS)
        found += [sentence.decode() for sentence in sentences]
    found += [sentence.decode() for sentence in await server.run(AUDIT_SCHEDULES, {}, patience=AUDIT_SECONDS)]
    return found
