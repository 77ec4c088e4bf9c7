"""Exchange: settle what finished, then claim by the rule of `domain.admission`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from jobyard.domain.admission import share
from jobyard.domain.instant import after
from jobyard.domain.job import Parent
from jobyard.domain.lease import Lease
from jobyard.domain.retry import DEFAULT_BACKOFF
from jobyard.domain.state import Settlement
from jobyard.ports.job_store import Exchange
from jobyard.stores._shared.job_rows import decode_backoff
from jobyard.stores.sqlite.codec import IS_CHILD, IS_WORKFLOW, json_list
from jobyard.stores.sqlite.connection import SqliteConnection
from jobyard.stores.sqlite.leases import cancel_requests_of
from jobyard.stores.sqlite.notifier import SqliteNotifier
from jobyard.stores.sqlite.queue_line import next_due
from jobyard.stores.sqlite.queue_rows import GroupRow
from jobyard.stores.sqlite.settle import settle_all
from jobyard.stores.sqlite.sql import SQL
from jobyard.stores.sqlite.transaction import BY_TURN, Transaction, new_token


class IdleCheck:
    """Condition for a waiting claim to keep waiting: nothing was claimed, and no cancel request is new."""

    def __init__(self) -> None:
        self._known: set[object] | None = None

    def __call__(self, answer: Exchange) -> bool:
        requests: set[object] = set(answer.cancelled)
        if self._known is None:
            self._known = requests
        return not answer.leases and requests <= self._known


class SqliteClaim:
    def __init__(self, connection: SqliteConnection, notifier: SqliteNotifier) -> None:
        self._connection = connection
        self._notifier = notifier

    async def exchange(
        self,
        worker: str,
        settlements: Sequence[Settlement],
        queues: Sequence[str],
        wanted: int,
        lease_seconds: float,
        until: asyncio.Future[None] | None = None,
    ) -> Exchange:
        def work(tx: Transaction) -> Exchange:
            refused = settle_all(tx, settlements)
            claimed = claim(tx, worker, queues, wanted, lease_seconds)
            if settlements and len(claimed) == wanted:
                # The settlements freed slots that this worker may not have used: other workers should claim.
                tx.has_work = True
            if claimed or len(refused) < len(settlements):
                tx.bump()
            return Exchange(
                refused=tuple(refused),
                leases=tuple(claimed),
                # A waiting claim should start its job without delay; its renewals bring cancel requests anyway.
                cancelled=() if claimed and until is not None else cancel_requests_of(tx, worker),
                next_due_at=next_due(tx),
                revision=tx.revision,
                now=tx.now,
            )

        if until is None or settlements:
            return await self._connection.write(work, durable=bool(settlements))
        threads = self._connection.threads
        with threads.watcher.subscribed(self._notifier.has_work(queues), threads.writer.retry_waiting):
            return await threads.writer.write_when_ready(work, IdleCheck(), until)


def claim(tx: Transaction, worker: str, queues: Sequence[str], wanted: int, lease_seconds: float) -> list[Lease]:
    order = _choose_groups(tx, queues, wanted)
    if not order:
        return []
    counts: dict[int, int] = {}
    for group in order:
        counts[id(group)] = counts.get(id(group), 0) + 1
    picked = _take_heads(tx, [group for group in order if counts[id(group)] == 1])
    picked |= {
        id(group): _take(tx, group, counts[id(group)]) for group in dict.fromkeys(order) if id(group) not in picked
    }
    token, expires_at, now = new_token(), after(tx.now, lease_seconds), tx.now
    leases: list[Lease] = []
    rows: list[tuple[object, ...]] = []
    marked: list[int] = []  # indexes of child jobs and workflows
    for group in order:
        queue = group.queue
        (urgency, sequence, job_id, kind, most, used, deaths, payload, private, timeout, backoff, signal, flags) = next(
            picked[id(group)]
        )
        if flags & (IS_CHILD | IS_WORKFLOW):
            marked.append(len(leases))
        rows.append((sequence, token, expires_at, worker, used + 1, now, queue.name, group.name, flags))
        leases.append(
            Lease(
                job_id,
                sequence,
                token,
                kind,
                queue.name,
                group.name or None,
                -urgency,
                used + 1,
                most,
                deaths,
                payload,
                private,
                timeout,
                DEFAULT_BACKOFF if backoff is None else decode_backoff(backoff),
                signal,
                bool(flags & IS_WORKFLOW),
            )
        )
        tx.turn += 1
        group.turn = queue.turn = tx.turn
    tx.bare_cursor.executemany(SQL["insert_lease"], rows)
    if marked:
        _add_parents_and_requests(tx, leases, marked)
    return leases


def _add_parents_and_requests(tx: Transaction, leases: list[Lease], marked: list[int]) -> None:
    index_of = {leases[index].sequence: index for index in marked}
    for sequence, what, data in tx.bare_cursor.execute(SQL["list_lease_extras"], (json_list(list(index_of)),)):
        index = index_of[sequence]
        if what == "parent":
            leases[index] = msgspec.structs.replace(leases[index], parent=msgspec.json.decode(data, type=Parent))
        else:
            leases[index] = msgspec.structs.replace(leases[index], cancel_requested=data.decode())


def _choose_groups(tx: Transaction, queues: Sequence[str], wanted: int) -> list[GroupRow]:
    """Return the group of each job to claim, in the order of single claims."""
    if wanted <= 0:
        return []
    # Changes of this transaction are not written yet, so the statement does not find queues that just got work.
    names = queues or [*tx.loaded_queues(), *(name for (name,) in tx.bare_cursor.execute(SQL["queues_with_work"]))]
    candidates = [queue for queue in map(tx.known_queue, dict.fromkeys(names)) if queue and queue.waiting]
    candidates = [queue for queue in candidates if queue.room() > 0]
    candidates.sort(key=BY_TURN)
    lines: list[list[GroupRow]] = []
    for queue in candidates:
        lines.append(tx.open_groups(queue, min(wanted, queue.room())))
        # Each queue with open groups gets one job before any gets a second: queues after the first `wanted` get none.
        if sum(map(bool, lines)) == wanted:
            break
    rooms = [[group.room() for group in line] for line in lines]
    turns = share([min(q.room(), sum(r)) for q, r in zip(candidates, rooms, strict=False)], wanted)
    if len(lines) == 1:
        return [lines[0][index] for index in share(rooms[0], len(turns))]
    given = [iter(share(r, turns.count(index))) for index, r in enumerate(rooms)]
    return [lines[index][next(given[index])] for index in turns]


def _take_heads(tx: Transaction, groups: list[GroupRow]) -> dict[int, Iterator[tuple[Any, ...]]]:
    """Do as `_take` for groups that give one job each: one statement for all costs much less than one per group."""
    by_queue: dict[str, list[GroupRow]] = {}
    picked: dict[int, Iterator[tuple[Any, ...]]] = {}
    for group in groups:
        unwritten = tx.take_unwritten(group)
        if unwritten is None:
            by_queue.setdefault(group.queue.name, []).append(group)
        else:
            picked[id(group)] = iter([unwritten])
            _count_started(group, 1)
    for queue, some in by_queue.items():
        taken: list[tuple[object, ...]] = []
        names = json_list([group.name for group in some])
        for index, *row in tx.cursor.execute(SQL["group_heads"], (names, queue)).fetchall():
            group = some[index]
            taken.append((queue, group.name, row[0], row[1]))
            picked[id(group)] = iter([tuple(row)])
            _count_started(group, 1)
        tx.cursor.executemany(SQL["delete_ready"], taken)
    return picked


def _take(tx: Transaction, group: GroupRow, count: int) -> Iterator[tuple[Any, ...]]:
    """Take the first jobs of the group out of line, and count them as running."""
    queue = group.queue
    rows = tx.cursor.execute(SQL["next_jobs_of_group"], (queue.name, group.name, count)).fetchall()
    last = rows[-1]
    tx.cursor.execute(SQL["delete_ready_through"], (queue.name, group.name, last[0], last[1]))
    _count_started(group, count)
    return iter(rows)


def _count_started(group: GroupRow, count: int) -> None:
    group.waiting -= count
    group.running += count
    group.dirty = True
    group.queue.waiting -= count
    group.queue.running += count
