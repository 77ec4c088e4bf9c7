"""Since when jobs wait and run, from the first places of each group."""

from __future__ import annotations

from itertools import islice

from jobyard.ports.admin_store import PLACES_LOOKED_AT, QueueAges
from jobyard.stores.memory.line import QueueLine
from jobyard.stores.memory.shelf import Shelf


def ages_of(shelf: Shelf, line: QueueLine) -> QueueAges:
    name = line.queue.name
    first: dict[tuple[str | None, int], int] = {}
    for group, places in sorted(line.groups.items(), key=lambda item: item[0] or ""):
        for urgency, sequence in places.places:
            first.setdefault((group, urgency), sequence)
    entries = [shelf.at(sequence) for sequence in islice(first.values(), PLACES_LOOKED_AT)]
    started = [entry.started_at for entry in shelf.running.values() if entry.new.queue == name and entry.started_at]
    return QueueAges(
        queue=name,
        waiting_since=min((max(entry.created_at, entry.run_at) for entry in entries), default=None),
        running_since=min(started, default=None),
    )
