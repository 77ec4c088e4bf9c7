"""Audit: recount everything from the jobs and report where the kept counts disagree."""

from __future__ import annotations

from collections import Counter

from jobyard.domain.instant import Instant
from jobyard.domain.job import State
from jobyard.stores.memory.job_table import JobTable
from jobyard.stores.memory.queue_line import QueueLine


def disagreements(table: JobTable, now: Instant) -> list[str]:
    found = _misplaced(table, now)
    for line in table.lines:
        found += _miscounted(table, line)
    return found


def _misplaced(table: JobTable, now: Instant) -> list[str]:
    found: list[str] = []
    delayed = table.delayed()
    expected = sorted((job.run_at, job.sequence) for job in table if job.state is State.PENDING and not job.is_in_line)
    if delayed != expected:
        found.append(f"Delayed jobs: {len(delayed)} kept, {len(expected)} counted.")
    for stored in table:
        if (stored.state is State.RUNNING) != (stored.lease is not None):
            found.append(f"Job {stored.id} is {stored.state} {'with' if stored.lease else 'without'} a lease.")
        if stored.state is State.PENDING and not stored.is_in_line and stored.run_at <= now:
            found.append(f"Job {stored.id} is due at {stored.run_at} but not in line.")
    return found


def _miscounted(table: JobTable, line: QueueLine) -> list[str]:
    found: list[str] = []
    name = line.queue.name
    mine = [stored for stored in table if stored.new.queue == name]

    def compare(what: str, kept: int, counted: int) -> None:
        if kept != counted:
            found.append(f"{what}: {kept} kept, {counted} counted.")

    states = Counter(stored.state for stored in mine)
    compare(f"Running jobs of queue {name}", line.queue.running, states[State.RUNNING])
    compare(f"Waiting jobs of queue {name}", line.due + line.delayed, states[State.PENDING])
    for state in State:
        if state.is_final:
            compare(f"{state} jobs of queue {name}", line.ended.get(state, 0), states[state])
    compare(f"Ended jobs of queue {name}", len(line.completed) + len(line.failed), sum(line.ended.values()))
    for group_name in {stored.new.group for stored in mine} | set(line.groups):
        group = line.group(group_name)
        jobs = [stored for stored in mine if stored.new.group == group_name]
        where = f"group {group_name} of queue {name}"
        in_line = sorted(stored.position for stored in jobs if stored.is_in_line)
        compare(f"Due jobs of {where}", group.group.due, len(in_line))
        compare(
            f"Delayed jobs of {where}", group.delayed, sum(job.state is State.PENDING for job in jobs) - len(in_line)
        )
        compare(f"Running jobs of {where}", group.group.running, sum(job.state is State.RUNNING for job in jobs))
        if group.positions != in_line:
            found.append(f"The line of {where} differs from its due jobs in order.")
        line.drop_if_idle(group_name)
    return found
