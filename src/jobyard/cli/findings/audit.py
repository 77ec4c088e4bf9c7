"""Audit of a store: bounded unless the whole is asked for, because some stores block while it reads everything."""

from __future__ import annotations

from jobyard.ports.store import Finding, Level, Store

# On Redis about 10 µs each, in which the server answers nobody else.
MOST_JOBS = 20_000


async def audit_findings(store: Store, *, full: bool = False) -> list[Finding]:
    counts = await store.queues()
    jobs = sum(one.waiting + one.delayed + one.running + one.completed + one.failed + one.cancelled for one in counts)
    if jobs > MOST_JOBS and not full:
        message = f"not done: it would read {jobs:,} jobs, and a store may block meanwhile"
        return [Finding(Level.OK, "audit", message, "jobyard audit, or jobyard doctor --full, in a quiet hour")]
    problems = await store.audit()
    if not problems:
        return [Finding(Level.OK, "audit", "all counts match the jobs")]
    return [Finding(Level.FAIL, "audit", problem, "jobyard audit --repair; then report a bug") for problem in problems]
