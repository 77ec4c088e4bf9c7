"""Counts everything again, from the jobs alone, and says where the kept counts disagree."""

from __future__ import annotations

from collections import Counter

from jobyard.domain.instant import Instant
from jobyard.domain.job import State
from jobyard.stores.memory.line import QueueLine
from jobyard.stores.memory.shelf import Shelf


def disagreements(shelf: Shelf, now: Instant) -> list[str]:
    found = _misplaced(shelf, now)
    for line in shelf.lines:
        found += _miscounted(shelf, line)
    return found


def _misplaced(shelf: Shelf, now: Instant) -> list[str]:
    """Each job is in the one place that its state calls for."""
    found: list[str] = []
    delayed = shelf.delayed_places()
    expected = sorted((job.run_at, job.sequence) for job in shelf if job.state is State.PENDING and not job.is_in_line)
    if delayed != expected:
        found.append(f"{len(delayed)} jobs are kept as delayed, {len(expected)} are.")
    for entry in shelf:
        if (entry.state is State.RUNNING) != (entry.hold is not None):
            found.append(f"Job {entry.id} is {entry.state} but {'has a' if entry.hold else 'has no'} lease.")
        if entry.state is State.PENDING and entry.is_in_line != (entry.run_at <= now):
            found.append(f"Job {entry.id} is due at {entry.run_at} but {'' if entry.is_in_line else 'not '}in line.")
    return found


def _miscounted(shelf: Shelf, line: QueueLine) -> list[str]:
    found: list[str] = []
    name = line.queue.name
    mine = [entry for entry in shelf if entry.new.queue == name]

    def compare(what: str, kept: int, counted: int) -> None:
        if kept != counted:
            found.append(f"{what}: {kept} kept, {counted} counted.")

    states = Counter(entry.state for entry in mine)
    compare(f"Running jobs of queue {name}", line.queue.running, states[State.RUNNING])
    compare(f"Waiting jobs of queue {name}", line.due + line.delayed, states[State.PENDING])
    for state in State:
        if state.is_final:
            compare(f"{state} jobs of queue {name}", line.ended.get(state, 0), states[state])
    compare(f"Ended jobs of queue {name}", len(line.completed) + len(line.failed), sum(line.ended.values()))
    for group_name in {entry.new.group for entry in mine} | set(line.groups):
        group = line.group(group_name)
        jobs = [entry for entry in mine if entry.new.group == group_name]
        where = f"group {group_name} of queue {name}"
        in_line = sorted(entry.place for entry in jobs if entry.is_in_line)
        compare(f"Due jobs of {where}", group.group.due, len(in_line))
        compare(
            f"Delayed jobs of {where}", group.delayed, sum(job.state is State.PENDING for job in jobs) - len(in_line)
        )
        compare(f"Running jobs of {where}", group.group.running, sum(job.state is State.RUNNING for job in jobs))
        if group.places != in_line:
            found.append(f"The line of {where} is not in order, or not of its due jobs.")
        line.forget_if_idle(group_name)
    return found
