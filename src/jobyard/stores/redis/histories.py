"""Histories of workflows: checkpoints, deliveries, and ends to deliver."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from struct import Struct
from typing import Any, TypeVar

import msgspec

from jobyard.domain.history import Delivery, EndedJob, HistoryEntry
from jobyard.domain.job import State
from jobyard.ports.workflow_store import Checkpoint
from jobyard.stores.redis.client import RedisClient
from jobyard.stores.redis.codec import STATES, as_string, decode_parent, encode, split_strings
from jobyard.stores.redis.exchange import call_until_answered
from jobyard.stores.redis.settle import LeaseQueues

# Per command: more would block the server for other clients. A single checkpoint is always one command.
MAX_ENTRIES = 500
MAX_BYTES = 1 << 20
ENTRY = Struct(">ddI")  # number, at, length of the data
ENDED = Struct(">dBBB")  # number, state, has a reason, is a workflow
DELETED = 255

T = TypeVar("T")


class RedisHistories:
    def __init__(self, client: RedisClient, lease_queues: LeaseQueues) -> None:
        self._client = client
        self._lease_queues = lease_queues

    async def checkpoint(self, checkpoints: Sequence[Checkpoint]) -> list[tuple[HistoryEntry, ...] | None]:
        recorded: list[tuple[HistoryEntry, ...] | None] = []
        for batch in _batches(checkpoints, _size_of_checkpoint):
            request = {"checkpoints": [self._encode(each) for each in batch]}
            # Repeating is safe: the first entry of a key is kept.
            answers = await call_until_answered(self._client, "checkpoint", request)
            recorded += map(_recorded, batch, answers)
        return recorded

    def _encode(self, checkpoint: Checkpoint) -> tuple[Any, ...]:
        flat: list[Any] = []
        for entry in checkpoint.entries:
            flat += (entry.scope, entry.key, as_string(entry.data))
        restart = checkpoint.restart
        payload = False if restart is None else as_string(encode(restart.payload))
        taken = [] if restart is None else [part for position in restart.taken for part in position]
        return (*self._lease_queues.encode_key(checkpoint.key), flat, payload, taken)

    async def history(self, job_id: str, scope: str = "", *, after: int = 0, limit: int = 1000) -> list[HistoryEntry]:
        entries: list[HistoryEntry] = []
        while len(entries) < limit:
            asked = min(MAX_ENTRIES, limit - len(entries))
            request = {"wanted": [job_id, scope], "after": after, "limit": asked, "bytes": MAX_BYTES}
            [[has_more, *flat]] = await self._client.call("history", request)
            entries += _entries(scope, flat)
            if not has_more or not flat:
                break
            after = entries[-1].number
        return entries

    async def histories(self, wanted: Sequence[tuple[str, str]], limit: int = 1000) -> list[list[HistoryEntry]]:
        found: list[list[HistoryEntry]] = []
        for batch in _batches(wanted, lambda _: (1, 0)):
            flat = [part for each in batch for part in each]
            asked = min(MAX_ENTRIES, limit)
            pages = await self._client.call("history", {"wanted": flat, "after": 0, "limit": asked, "bytes": MAX_BYTES})
            for (job_id, scope), (has_more, *page) in zip(batch, pages, strict=True):
                entries = _entries(scope, page)
                if has_more and len(entries) < limit:
                    after = entries[-1].number if entries else 0
                    entries += await self.history(job_id, scope, after=after, limit=limit - len(entries))
                found.append(entries)
        return found

    async def deliver(self, deliveries: Sequence[Delivery], ended: Sequence[str] = ()) -> None:
        batches = list(_batches(deliveries, lambda delivery: (1, len(delivery.data))))
        for batch in batches:
            flat: list[Any] = []
            for each in batch:
                flat += (each.job_id, each.scope, each.key, as_string(each.data))
            forgotten = list(ended) if batch is batches[-1] else []
            await self._client.call("deliver", {"deliveries": flat, "ended": forgotten})
        if ended and not batches:
            await self.forget_ended(ended)

    async def ended_jobs(self, limit: int = 1000) -> list[EndedJob]:
        ends: list[EndedJob] = []
        after = 0
        while len(ends) < limit:
            request = {"after": after, "limit": min(MAX_ENTRIES, limit - len(ends)), "bytes": MAX_BYTES}
            has_more, *flat = await self._client.call("ended_jobs", request)
            ends += [_ended_job(job_id, row) for job_id, row in zip(flat[::2], flat[1::2], strict=True)]
            if not has_more or not flat:
                break
            after = int(ENDED.unpack_from(flat[-1])[0])
        return ends

    async def forget_ended(self, job_ids: Sequence[str]) -> None:
        for batch in _batches(job_ids, lambda _: (1, 0)):
            await self._client.call("forget_ended", {"ids": list(batch)})


def _size_of_checkpoint(checkpoint: Checkpoint) -> tuple[int, int]:
    size = sum(len(entry.data) for entry in checkpoint.entries)
    return len(checkpoint.entries), size + (0 if checkpoint.restart is None else len(checkpoint.restart.payload))


def _batches(items: Sequence[T], size_of: Callable[[T], tuple[int, int]]) -> Iterator[Sequence[T]]:
    """Parts of at most MAX_ENTRIES and MAX_BYTES, or of one item; `size_of` returns entries and bytes of an item."""
    start = entries = size = 0
    for end, item in enumerate(items):
        its_entries, its_size = size_of(item)
        if end > start and (entries + its_entries > MAX_ENTRIES or size + its_size > MAX_BYTES):
            yield items[start:end]
            start, entries, size = end, 0, 0
        entries, size = entries + its_entries, size + its_size
    if start < len(items):
        yield items[start:]


def _recorded(checkpoint: Checkpoint, answer: list[Any] | None) -> tuple[HistoryEntry, ...] | None:
    if answer is None:
        return None
    return tuple(
        msgspec.structs.replace(entry, number=number, at=at, data=data[0] if data else entry.data)
        for entry, (number, at, *data) in zip(checkpoint.entries, answer, strict=True)
    )


def _entries(scope: str, flat: Sequence[bytes]) -> list[HistoryEntry]:
    return [_entry(scope, key, value) for key, value in zip(flat[::2], flat[1::2], strict=True)]


def _entry(scope: str, key: bytes, value: bytes) -> HistoryEntry:
    number, at, size = ENTRY.unpack_from(value)
    data = value[ENTRY.size : ENTRY.size + size]
    return HistoryEntry(scope=scope, key=key.decode(), data=data, number=int(number), at=int(at))


def _ended_job(job_id: bytes, row: bytes) -> EndedJob:
    _, code, has_reason, is_workflow = ENDED.unpack_from(row)
    parent, result, reason = split_strings(row[ENDED.size :])
    state: State | None = None if code == DELETED else STATES[code]
    return EndedJob(
        job_id=job_id.decode(),
        state=state,
        parent=decode_parent(parent) if parent else None,
        is_workflow=bool(is_workflow),
        result=result or None,
        reason=reason.decode() if has_reason else None,
    )
