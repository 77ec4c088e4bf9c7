"""Why a job waits, from everything that the store knows: its queue, the workers and their handlers, the sandboxes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from jobyard.domain.explain import Cause, Explanation, JobPosition, explain
from jobyard.domain.job import Job, State
from jobyard.executors.sandbox.program import KIND
from jobyard.executors.workflow.file_records import FILE_WORKFLOW
from jobyard.operations.sandboxes import missing_sandbox
from jobyard.operations.workflow_history import workflow_waits
from jobyard.operations.workflow_runs import step_kinds
from jobyard.ports.admin_store import Filter, JobAdminStore
from jobyard.ports.schedule_store import WorkerInfo
from jobyard.ports.store import Store

# A sentence names at most this many workers or kinds; the data of the cause has all.
MAX_NAMES = 10
MAX_RUNNING = 200  # jobs that one explanation reads to count the taken slots
INTERNAL = "jobyard."  # begins the kinds of jobyard itself


async def explain_position(store: Store, position: JobPosition, *, names_others: bool = True) -> Explanation:
    """Without `names_others`, the explanation names neither workers nor other jobs and their kinds."""
    job = position.job
    if job.state is not State.PENDING:
        return explain(position)
    kinds = await needed_kinds(job)
    workers = await store.workers()
    handler = missing_handler(job, workers, kinds, names_others=names_others)
    waits = await workflow_waits(store, job, names_children=names_others)
    able = [worker for worker in workers if worker.takes(job.queue) and _is_known(job.kind, [worker])]
    busy = await busy_workers(store, job.queue, able, names_others=names_others) if position.is_due else ()
    return explain(position, (*handler, *await missing_sandbox(store, job), *busy), waits)


def missing_handler(
    job: Job, workers: Sequence[WorkerInfo], kinds: Sequence[str], *, names_others: bool = True
) -> tuple[Cause, ...]:
    """Why no live worker can run a waiting job; empty if one can, or may. Programs have a cause of their own."""
    serving = [worker for worker in workers if worker.takes(job.queue)]
    if job.kind == KIND or not serving:
        return ()
    missing = [kind for kind in kinds if not _is_known(kind, serving)]
    if not missing:
        return ()
    kind = missing[0]
    data: dict[str, object] = {"kind": kind}
    sentence = f"no live worker of queue {job.queue} has a handler for kind {kind}"
    if names_others:
        elsewhere = [worker.id for worker in workers if kind in (worker.kinds or ())]
        names = {kind for worker in serving for kind in worker.kinds or () if not kind.startswith(INTERNAL)}
        data |= {"workers": elsewhere, "known_kinds": sorted(names)}
        if elsewhere:
            sentence += f"; these have one, but do not take the queue: {_listed(elsewhere)}"
        else:
            sentence += f"; they have handlers for {_listed(sorted(names))}" if names else "; they have no handlers"
    return (Cause("no_handler", sentence, data),)


async def busy_workers(
    store: JobAdminStore, queue: str, workers: Sequence[WorkerInfo], *, names_others: bool = True
) -> tuple[Cause, ...]:
    """That each of the workers runs as many jobs as it has slots for; empty if one has a free slot."""
    if not workers:
        return ()
    page = await store.find(Filter(states=(State.RUNNING,)), limit=MAX_RUNNING)
    held = [job for job in page.jobs if job.external_id is None]  # a job that was handed off has left its slot
    counts = Counter(job.worker for job in held)
    for worker in workers:
        # A heartbeat is some seconds old, so the jobs decide, unless there are too many to look at.
        running = worker.running if page.cursor else counts[worker.id]
        if running < worker.concurrency:
            return ()
    slots = sum(worker.concurrency for worker in workers)
    where = f"of the workers of queue {queue}"
    sentence = f"the only slot {where} is taken" if slots == 1 else f"all {slots} slots {where} are taken"
    data: dict[str, object] = {"queue": queue, "slots": slots}
    if names_others:
        names = {worker.id for worker in workers}
        data |= {"workers": sorted(names), "holders": [job.id for job in held if job.worker in names][:MAX_NAMES]}
    return (Cause("workers_busy", sentence, data),)


async def needed_kinds(job: Job) -> list[str]:
    """The kinds of handlers that a worker needs for a job; a run of a workflow file needs those of its steps."""
    steps = await step_kinds(job) if job.kind == FILE_WORKFLOW else ()
    return list(dict.fromkeys([job.kind, *steps]))


def _is_known(kind: str, workers: Sequence[WorkerInfo]) -> bool:
    return any(worker.kinds is None or kind in worker.kinds for worker in workers)


def _listed(names: Sequence[str]) -> str:
    """
    >>> _listed(["a", "b"]), _listed([str(number) for number in range(12)])
    ('a, b', '0, 1, 2, 3, 4, 5, 6, 7, 8, 9, …')
    """
    return ", ".join(names[:MAX_NAMES]) + (", …" if len(names) > MAX_NAMES else "")
