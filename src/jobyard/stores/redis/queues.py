"""Queues and groups: settings, limits, pauses, counts, ages, and the facts behind an explanation."""

from __future__ import annotations

from struct import Struct
from typing import Any

from jobyard.domain.admission import Group, Queue
from jobyard.domain.explain import Standing
from jobyard.domain.job import QueueSettings
from jobyard.errors import JobNotFound
from jobyard.ports.admin_store import MAX_HEADS_SCANNED, GroupInfo, QueueAges, QueueInfo
from jobyard.stores._shared.limits import MAX_COUNTED_AHEAD, MAX_RUNNING_IDS
from jobyard.stores.redis.client import RedisClient
from jobyard.stores.redis.codec import decode_queue, encode_queue, milliseconds, unpack_job
from jobyard.stores.redis.job_view import job_view
from jobyard.stores.redis.schedules import live_workers
from jobyard.stores.redis.scripts import function_name

CONFIGURE, QUEUES, GROUPS = function_name("configure"), function_name("queues"), function_name("groups")
AGES, STANDING = function_name("ages"), function_name("standing")

GROUP_ROW = Struct(">IIIddB")  # waiting, delayed, running, turn, limit, paused
QUEUE_ROW = Struct(">15d")  # settings, then counts


class RedisQueues:
    def __init__(self, client: RedisClient) -> None:
        self._client = client

    async def configure(self, queue: str, settings: QueueSettings) -> None:
        limits = (settings.max_running, settings.max_per_group, settings.max_waiting, settings.max_waiting_per_group)
        values = [-1 if limit is None else limit for limit in limits]
        values += [settings.keep_completed, settings.keep_failed, milliseconds(settings.keep_seconds)]
        await self._client.call(CONFIGURE, {"name": encode_queue(queue), "settings": values})

    async def set_paused(self, queue: str, group: str | None, paused: bool) -> None:
        request: dict[str, Any] = {"name": encode_queue(queue), "paused": int(paused)}
        if group is not None:
            request["group"] = group
        await self._client.call(CONFIGURE, request)

    async def set_limit(self, queue: str, group: str, limit: int | None) -> None:
        request = {"name": encode_queue(queue), "group": group, "limit": -1 if limit is None else limit}
        await self._client.call(CONFIGURE, request)

    async def queues(self) -> list[QueueInfo]:
        rows = await self._client.call(QUEUES, {})
        return sorted((_queue_info(decode_queue(name), row) for name, row in rows), key=lambda info: info.name)

    async def ages(self) -> list[QueueAges]:
        rows = await self._client.call(AGES, {"most": MAX_HEADS_SCANNED})
        found = [
            QueueAges(
                queue=decode_queue(name),
                waiting_since=int(waiting) if waiting else None,
                running_since=int(running) if running else None,
            )
            for name, waiting, running in rows
        ]
        return sorted(found, key=lambda ages: ages.queue)

    async def groups(self, queue: str, limit: int = 1000, after: str | None = None) -> list[GroupInfo]:
        request: dict[str, Any] = {"name": encode_queue(queue), "limit": limit}
        if after is not None:
            request["after"] = after
        reply = await self._client.call(GROUPS, request)
        if not reply:
            return []
        max_per_group, rows = reply
        infos: list[GroupInfo] = []
        for name, row in rows:
            waiting, delayed, running, _, own_limit, paused = GROUP_ROW.unpack_from(row)
            inherited = max_per_group if name and max_per_group >= 0 else None
            infos.append(
                GroupInfo(
                    queue=queue,
                    name=name.decode() or None,
                    limit=None if own_limit < 0 else int(own_limit),
                    effective_limit=int(own_limit) if own_limit >= 0 else inherited,
                    paused=bool(paused),
                    waiting=waiting,
                    delayed=delayed,
                    running=running,
                )
            )
        return infos

    async def standing(self, job_id: str) -> Standing:
        request = {"id": job_id, "max_counted": MAX_COUNTED_AHEAD, "max_named": MAX_RUNNING_IDS}
        reply = await self._client.call(STANDING, request)
        if not reply:
            raise JobNotFound.of(job_id)
        parts, (max_running, max_per_group, paused, running, turn), row, ahead, groups_ahead, holders, beats, now = (
            reply
        )
        job = job_view(parts)
        waiting, _, group_running, group_turn, own_limit, group_paused = GROUP_ROW.unpack_from(row)
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
                job.group,
                None if own_limit < 0 else int(own_limit),
                bool(group_paused),
                group_running,
                waiting,
                int(group_turn),
            ),
            ahead_in_group=min(ahead, MAX_COUNTED_AHEAD),
            groups_ahead=min(groups_ahead, MAX_COUNTED_AHEAD),
            counts_capped=max(ahead, groups_ahead) > MAX_COUNTED_AHEAD,
            running_ids=tuple(unpack_job(record)[4].id for record in holders),
            workers=sum(worker.takes(job.queue) for worker in live_workers(beats, now)),
        )


def _queue_info(name: str, row: bytes) -> QueueInfo:
    values = QUEUE_ROW.unpack(row)
    limits = [None if limit < 0 else int(limit) for limit in values[:4]]
    waiting, delayed, running, completed, failed, cancelled, _, paused = map(int, values[7:])
    return QueueInfo(
        name=name,
        settings=QueueSettings(
            max_running=limits[0],
            max_per_group=limits[1],
            max_waiting=limits[2],
            max_waiting_per_group=limits[3],
            keep_completed=int(values[4]),
            keep_failed=int(values[5]),
            keep_seconds=int(values[6]) / 1000,
        ),
        paused=bool(paused),
        waiting=waiting,
        delayed=delayed,
        running=running,
        completed=completed,
        failed=failed,
        cancelled=cancelled,
    )
