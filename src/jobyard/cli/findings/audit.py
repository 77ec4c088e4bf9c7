"""Audit of a store. Bounded by default, because a full read blocks some stores."""

from __future__ import annotations

from jobyard.operations.workflow_audit import audit_workflows
from jobyard.ports.store import Finding, Level, Store

# On Redis about 10 µs each, during which the server serves no other client.
MAX_JOBS = 20_000


async def audit_findings(store: Store, *, full: bool = False) -> list[Finding]:
    counts = await store.queues()
    jobs = sum(one.waiting + one.delayed + one.running + one.completed + one.failed + one.cancelled for one in counts)
    if jobs > MAX_JOBS and not full:
        message = f"not done: it would read {jobs:,} jobs, and a store may block meanwhile"
        return [Finding(Level.OK, "audit", message, "jobyard audit, or jobyard doctor --full, during low traffic")]
    problems = [*await store.audit(), *map(str, await audit_workflows(store))]
    if not problems:
        return [Finding(Level.OK, "audit", "all counts match the jobs")]
    return [Finding(Level.FAIL, "audit", problem, "jobyard audit --repair; then report a bug") for problem in problems]
