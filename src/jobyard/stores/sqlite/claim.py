"""Claim: the rule of `domain.admission`, performed on the open groups in line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from jobyard.domain.admission import share
from jobyard.domain.instant import after
from jobyard.domain.lease import Lease
from jobyard.domain.retry import DEFAULT_BACKOFF
from jobyard.stores._shared.job_rows import decode_backoff
from jobyard.stores.sqlite.statements import as_list, sql
from jobyard.stores.sqlite.transaction import GroupRow, QueueRow, Transaction, new_token

QUEUES_WITH_WORK = sql("queues_with_work")
PICK_READY, TAKE_READY, INSERT_LEASE = sql("pick_ready"), sql("take_ready"), sql("insert_lease")
PICK_HEADS, DELETE_READY = sql("pick_heads"), sql("delete_ready")


def claim(tx: Transaction, worker: str, queues: Sequence[str], wanted: int, lease_seconds: float) -> list[Lease]:
    order = places(tx, queues, wanted)
    if not order:
        return []
    counts: dict[int, int] = {}
    for group in order:
        counts[id(group)] = counts.get(id(group), 0) + 1
    picked = pick_heads(tx, [group for group in order if counts[id(group)] == 1])
    picked |= {
        id(group): pick(tx, group, counts[id(group)]) for group in dict.fromkeys(order) if id(group) not in picked
    }
    token, expires_at, now = new_token(), after(tx.now, lease_seconds), tx.now
    leases: list[Lease] = []
    rows: list[tuple[object, ...]] = []
    for group in order:
        queue = group.queue
        (urgency, sequence, job_id, kind, most, used, deaths, payload, private, timeout, backoff, signal, flags) = next(
            picked[id(group)]
        )
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
            )
        )
        tx.turn += 1
        group.turn = queue.turn = tx.turn
    tx.bare_cursor.executemany(INSERT_LEASE, rows)
    return leases


def places(tx: Transaction, queues: Sequence[str], wanted: int) -> list[GroupRow]:
    """Whose job is taken, once per job, in the order of single claims."""
    if wanted <= 0:
        return []
    # What this transaction changed is not written yet: a job that just became due is known to its queue only.
    names = queues or [*tx.loaded_queues(), *(row[0] for row in tx.bare_cursor.execute(QUEUES_WITH_WORK).fetchall())]
    candidates = [queue for queue in map(tx.known_queue, dict.fromkeys(names)) if queue and queue.waiting]
    candidates = [queue for queue in candidates if queue.room() > 0]
    candidates.sort(key=_turn)
    lines: list[list[GroupRow]] = []
    for queue in candidates:
        lines.append(tx.line(queue, min(wanted, queue.room())))
        # Each queue with a line gets a turn before any gets a second: those after the first `wanted` get none.
        if sum(map(bool, lines)) == wanted:
            break
    rooms = [[group.room() for group in line] for line in lines]
    turns = share([min(q.room(), sum(r)) for q, r in zip(candidates, rooms, strict=False)], wanted)
    if len(lines) == 1:
        return [lines[0][index] for index in share(rooms[0], len(turns))]
    given = [iter(share(r, turns.count(index))) for index, r in enumerate(rooms)]
    return [lines[index][next(given[index])] for index in turns]


def pick_heads(tx: Transaction, groups: list[GroupRow]) -> dict[int, Iterator[tuple[Any, ...]]]:
    """As `pick`, for groups that give one job each: a statement for all costs much less than one for each."""
    by_queue: dict[str, list[GroupRow]] = {}
    picked: dict[int, Iterator[tuple[Any, ...]]] = {}
    for group in groups:
        fresh = tx.take_fresh(group)
        if fresh is None:
            by_queue.setdefault(group.queue.name, []).append(group)
        else:
            picked[id(group)] = iter([fresh])
            start(group, 1)
    for queue, some in by_queue.items():
        taken: list[tuple[object, ...]] = []
        for place, *row in tx.cursor.execute(PICK_HEADS, (as_list([group.name for group in some]), queue)).fetchall():
            group = some[place]
            taken.append((queue, group.name, row[0], row[1]))
            picked[id(group)] = iter([tuple(row)])
            start(group, 1)
        tx.cursor.executemany(DELETE_READY, taken)
    return picked


def pick(tx: Transaction, group: GroupRow, count: int) -> Iterator[tuple[Any, ...]]:
    """Take the head of the group out of the line; the running counts move in the same step."""
    queue = group.queue
    rows = tx.cursor.execute(PICK_READY, (queue.name, group.name, count)).fetchall()
    last = rows[-1]
    tx.cursor.execute(TAKE_READY, (queue.name, group.name, last[0], last[1]))
    start(group, count)
    return iter(rows)


def start(group: GroupRow, count: int) -> None:
    group.waiting -= count
    group.running += count
    group.dirty = True
    group.queue.waiting -= count
    group.queue.running += count


def _turn(queue: QueueRow) -> int:
    return queue.turn
