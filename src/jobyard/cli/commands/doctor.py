"""`jobyard doctor`: diagnose a store, its workers, queues, schedules and sandboxes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import click

from jobyard.cli.findings.audit import audit_findings
from jobyard.cli.findings.report import report
from jobyard.cli.findings.sandboxes import sandbox_findings
from jobyard.cli.findings.schedules import stored_findings
from jobyard.cli.findings.workflows import invalid_workflows
from jobyard.cli.render.output import duration
from jobyard.cli.session import Session, async_command
from jobyard.config.sections import SandboxSection
from jobyard.domain.instant import Instant
from jobyard.domain.job import DAY_SECONDS, Job, State
from jobyard.domain.text import counted
from jobyard.errors import JobyardError, StoreError
from jobyard.operations.queries import Queries, take
from jobyard.ports.admin_store import Filter, QueueInfo
from jobyard.ports.schedule_store import WorkerInfo
from jobyard.ports.store import Finding, Level, Store

OLD_SECONDS = 600.0
# Reading more jobs would take too long.
LOOKED_AT_MOST = 20_000
# More than a few pages: a full disk may still have free pages inside the file.
PROBE_BYTES = 256 << 10


@click.command()
@click.option("--full", is_flag=True, help="Recount all jobs of a large store, too; Redis blocks meanwhile.")
@async_command
async def doctor(session: Session, full: bool) -> None:
    """Diagnose a store: what is wrong, why, and what to do.

    Each line says ok, warn or fail, with the reason and advice. Exit code 1 if a check failed. The jobs of a large
    store are recounted with --full only.

    \b
    Example:
      jobyard --store sqlite:///jobs.db doctor
    """
    session.require_store()
    findings: list[Finding] = []
    try:
        async with session.opened_store() as store:
            findings.append(Finding(Level.OK, "store", f"{store.url} responds"))
            async for finding in _examine(store, session.configuration.sandbox, full):
                findings.append(finding)  # noqa: PERF401  # findings before an error must be shown
    except JobyardError as error:
        findings.append(Finding(Level.FAIL, "store", str(error)))
    findings += invalid_workflows(session)
    report(session, findings)


async def _examine(store: Store, sandbox: SandboxSection, full: bool) -> AsyncIterator[Finding]:
    probe, found = await _writable(store), await store.diagnose()
    if not any(finding.check == "writable" and finding.level is Level.FAIL for finding in found):
        # A store that reports why it is not writable also has advice, so the probe would only repeat it.
        yield probe
    for finding in found:
        yield finding
    for finding in await audit_findings(store, full=full):
        yield finding
    queues, workers, now = await store.queues(), await store.workers(), await store.now()
    for finding in _workers(queues, workers):
        yield finding
    yield await _orphans(store, workers)
    yield await _oldest(store, now)
    for finding in _queues(queues):
        yield finding
    for finding in _retention(queues, now):
        yield finding
    async for finding in stored_findings(store):
        yield finding
    async for finding in sandbox_findings(store, sandbox):
        yield finding


async def _writable(store: Store) -> Finding:
    try:
        await store.put("jobyard.doctor", "probe", bytes(PROBE_BYTES), expire_seconds=60)
        await store.remove("jobyard.doctor", "probe")
    except StoreError as error:
        return Finding(Level.FAIL, "store", str(error))
    return Finding(Level.OK, "store", "is writable")


def _workers(queues: list[QueueInfo], workers: list[WorkerInfo]) -> Iterator[Finding]:
    if workers:
        slots = sum(worker.concurrency for worker in workers)
        quiet = sum(worker.quiet for worker in workers)
        some_quiet = f", {quiet} of them quiet" if quiet else ""
        yield Finding(Level.OK, "workers", f"{len(workers)} alive with {slots} slots{some_quiet}")
    else:
        yield Finding(Level.WARN, "workers", "none alive", "start one: jobyard --app module:attribute worker")
    for queue in queues:
        is_taken = any(worker.takes(queue.name) for worker in workers)
        if queue.waiting and workers and not is_taken:
            yield Finding(
                Level.WARN,
                "workers",
                f"queue {queue.name} has {counted(queue.waiting, 'waiting job')}, and no live worker takes it",
                f"start one: jobyard --app module:attribute worker --queue {queue.name}",
            )


async def _orphans(store: Store, workers: list[WorkerInfo]) -> Finding:
    """Running jobs whose worker is gone: their leases have expired, or soon will."""
    alive = {worker.id for worker in workers}
    orphans = [job for job in await _some(store, State.RUNNING) if job.worker not in alive and not job.external_id]
    if not orphans:
        return Finding(Level.OK, "leases", "every running job has a live worker")
    return Finding(
        Level.WARN,
        "leases",
        f"{counted(len(orphans), 'running job')} of workers without heartbeat, for example {orphans[0].id}",
        "a live worker reclaims them when their leases expire (12 s by default)",
    )


async def _oldest(store: Store, now: Instant) -> Finding:
    waiting = await _some(store, State.PENDING)
    due = [job for job in waiting if job.run_at <= now]
    if not due:
        return Finding(Level.OK, "waiting", "no due jobs are waiting")
    oldest = min(due, key=lambda job: max(job.created_at, job.run_at))
    seconds = (now - max(oldest.created_at, oldest.run_at)) / 1000
    message = f"the oldest due job has waited {duration(seconds)}: {oldest.id} in queue {oldest.queue}"
    if len(waiting) == LOOKED_AT_MOST:
        # Lists are newest first, so there are older jobs beyond the limit.
        message = f"the oldest due jobs have waited longer than {duration(seconds)}, for example {oldest.id}"
    if seconds < OLD_SECONDS:
        return Finding(Level.OK, "waiting", message)
    return Finding(Level.WARN, "waiting", message, f"jobyard explain {oldest.id}")


def _queues(queues: list[QueueInfo]) -> Iterator[Finding]:
    for queue in queues:
        if queue.paused:
            message = f"{queue.name} is paused with {counted(queue.waiting, 'waiting job')}"
            yield Finding(Level.WARN, "paused", message, f"jobyard queues resume {queue.name}")
    dead = {queue.name: queue.failed for queue in queues if queue.failed}
    if not dead:
        yield Finding(Level.OK, "dead letters", "none")
    for name, number in dead.items():
        advice = f"jobyard dead list --queue {name}; then jobyard dead redrive --queue {name}"
        yield Finding(Level.WARN, "dead letters", f"{number:,} in queue {name}", advice)


def _retention(queues: list[QueueInfo], now: Instant) -> Iterator[Finding]:
    """Queues whose cap removed jobs within a day: the age of such a removal also tells when it is over."""
    reached = [
        queue for queue in queues if queue.removed_by_cap_at and now - queue.removed_by_cap_at < DAY_SECONDS * 1000
    ]
    if not reached:
        yield Finding(Level.OK, "retention", "no queue has removed finished jobs before their time")
    for queue in reached:
        ago = duration((now - (queue.removed_by_cap_at or 0)) / 1000)
        most = queue.settings.keep_at_most
        message = (
            f"queue {queue.name} holds more than keep_at_most = {most:,} finished jobs: "
            f"{counted(queue.removed_by_cap, 'job')} removed before their time, the last {ago} ago"
        )
        advice = f"raise it: jobyard queues set {queue.name} --keep-at-most {2 * most or 1000}; or lower the ages"
        yield Finding(Level.WARN, "retention", message, advice)


async def _some(store: Store, state: State) -> list[Job]:
    return await take(Queries(store).walk(Filter(states=(state,))), LOOKED_AT_MOST)
