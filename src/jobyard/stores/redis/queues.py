"""Queues and groups: settings, limits, pauses, counts, ages, and the facts behind an explanation."""

from __future__ import annotations

from struct import Struct

from jobyard.domain.admission import Group, Queue
from jobyard.domain.explain import JobPosition
from jobyard.domain.job import QueueSettings
from jobyard.errors import JobNotFound
from jobyard.ports.admin_store import MAX_HEADS_SCANNED, GroupInfo, GroupsInLine, QueueAges, QueueInfo
from jobyard.stores._shared.limits import MAX_COUNTED_AHEAD, MAX_RUNNING_IDS
from jobyard.stores._shared.queue_rows import group_info, queue_info, queue_not_empty, settings_from_row, settings_row
from jobyard.stores.redis.client import RedisClient
from jobyard.stores.redis.codec import decode_queue, encode_queue, milliseconds, unpack_job
from jobyard.stores.redis.job_view import job_view
from jobyard.stores.redis.schedules import live_workers

# Due jobs that are not in line yet are read for the counts of groups; beyond this many they count as delayed.
MAX_DUE = 2000
# The groups of a queue with more are not sorted: only those with room are shown.
MAX_GROUPS_SORTED = 5000
GROUP_ROW = Struct(">IIIddB")  # waiting, delayed, running, turn, limit, paused
QUEUE_ROW = Struct(">19d")  # the values of `queue_row` in _queue_line.lua


class RedisQueues:
    def __init__(self, client: RedisClient) -> None:
        self._client = client

    async def configure(self, queue: str, settings: QueueSettings) -> None:
        *limits, completed, failed, completed_seconds, failed_seconds, at_most = settings_row(settings)
        values = [-1 if limit is None else limit for limit in limits]
        values += [completed, failed, milliseconds(completed_seconds), milliseconds(failed_seconds), at_most]
        await self._client.call("configure", {"name": encode_queue(queue), "settings": values})

    async def set_paused(self, queue: str, group: str | None, paused: bool) -> None:
        await self._client.call("configure", {"name": encode_queue(queue), "group": group, "paused": int(paused)})

    async def set_limit(self, queue: str, group: str, limit: int | None) -> None:
        request = {"name": encode_queue(queue), "group": group, "limit": -1 if limit is None else limit}
        await self._client.call("configure", request)

    async def remove_queue(self, queue: str) -> bool:
        jobs = await self._client.call("remove_queue", {"name": encode_queue(queue)})
        if jobs > 0:
            raise queue_not_empty(queue)
        return bool(jobs == 0)

    async def queues(self) -> list[QueueInfo]:
        rows = await self._client.call("queues", {})
        return sorted((_queue_info(decode_queue(name), row) for name, row in rows), key=lambda info: info.name)

    async def ages(self) -> list[QueueAges]:
        rows = await self._client.call("ages", {"most": MAX_HEADS_SCANNED})
        times = {decode_queue(name): [int(at) if at else None for at in both] for name, *both in rows}
        return [
            QueueAges(queue=name, waiting_since=times[name][0], running_since=times[name][1]) for name in sorted(times)
        ]

    async def groups(self, queue: str, limit: int = 1000, after: str | None = None) -> list[GroupInfo]:
        reply = await self._client.call(
            "groups", {"name": encode_queue(queue), "limit": limit, "after": after, "max_due": MAX_DUE}
        )
        return _group_infos(queue, *reply) if reply else []

    async def line(self, queue: str, limit: int = 100) -> GroupsInLine:
        request = {"name": encode_queue(queue), "limit": limit, "max_groups": MAX_GROUPS_SORTED}
        reply = await self._client.call("line", request)
        return GroupsInLine(tuple(_group_infos(queue, *reply[:2])), reply[2]) if reply else GroupsInLine((), 0)

    async def position(self, job_id: str) -> JobPosition:
        request = {"id": job_id, "max_counted": MAX_COUNTED_AHEAD, "max_named": MAX_RUNNING_IDS}
        reply = await self._client.call("position", request)
        if not reply:
            raise JobNotFound.of(job_id)
        parts, queue_row, group_row, ahead, groups_ahead, holders, beats, now, in_line = reply
        max_running, max_per_group, paused, running, turn = queue_row
        job = job_view(parts)
        waiting, _, group_running, group_turn, own, group_paused = GROUP_ROW.unpack_from(group_row)
        return JobPosition(
            job=job,
            is_due=bool(in_line) or job.run_at <= now,
            queue=Queue(job.queue, _limit(max_running), _limit(max_per_group), bool(paused), running, turn),
            group=Group(job.group, _limit(own), bool(group_paused), group_running, waiting, int(group_turn)),
            ahead_in_group=min(ahead, MAX_COUNTED_AHEAD),
            groups_ahead=min(groups_ahead, MAX_COUNTED_AHEAD),
            counts_capped=max(ahead, groups_ahead) > MAX_COUNTED_AHEAD,
            running_ids=tuple(unpack_job(record)[4].id for record in holders),
            workers=sum(worker.takes(job.queue) for worker in live_workers(beats, now)),
        )


def _group_infos(queue: str, max_per_group: float, rows: list[tuple[bytes, bytes]]) -> list[GroupInfo]:
    infos: list[GroupInfo] = []
    for name, row in rows:
        waiting, delayed, running, _, own_limit, paused = GROUP_ROW.unpack_from(row)
        values = (name.decode(), _limit(own_limit), paused, waiting, delayed, running)
        infos.append(group_info(queue, _limit(max_per_group), values))
    return infos


def _queue_info(name: str, row: bytes) -> QueueInfo:
    values = QUEUE_ROW.unpack(row)
    completed, failed, completed_ms, *counts, _, paused, failed_ms, at_most, by_cap, by_cap_at = map(int, values[4:])
    keep = (completed, failed, completed_ms / 1000, failed_ms / 1000, at_most)
    settings = settings_from_row((*map(_limit, values[:4]), *keep))
    return queue_info(name, settings, paused, (*counts, by_cap, by_cap_at or None))


def _limit(stored: float) -> int | None:
    return None if stored < 0 else int(stored)
