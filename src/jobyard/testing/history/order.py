"""Order within a group, judged at each claim."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator, Sequence

from jobyard.testing.history.claims import GroupKey, claims_in_order, group_of, group_waiting, violation_at
from jobyard.testing.history.lives import Lives
from jobyard.testing.history.violation import Violation
from jobyard.testing.history.waits import Wait


def check_order(lives: Lives, waits: Sequence[Wait]) -> Iterator[Violation]:
    arrivals = sorted(waits, key=lambda wait: wait.since)
    lines: dict[GroupKey, list[tuple[tuple[int, int], int, int]]] = defaultdict(list)
    arrived = 0
    for claim in claims_in_order(lives):
        while arrived < len(arrivals) and arrivals[arrived].since <= claim.position:
            wait = arrivals[arrived]
            heapq.heappush(lines[group_waiting(wait)], (wait.place, wait.until, arrived))
            arrived += 1
        line = lines[group_of(claim)]
        while line and line[0][1] <= claim.position:
            heapq.heappop(line)
        lease = claim.lease
        if line and line[0][0] < (-lease.priority, lease.sequence):
            better = arrivals[line[0][2]].life.id
            sentence = f"job {lease.job_id} was claimed while {better}, better placed in its group, was waiting"
            yield violation_at(claim, "order_violated", sentence, better=better)
