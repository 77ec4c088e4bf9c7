"""The client for synchronous programs: each verb runs the asynchronous one in a thread with an event loop."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Concatenate, ParamSpec, TypeVar, Unpack

from jobyard.api.schemas.jobs import ExplanationView, JobRequest, JobView
from jobyard.client.client import PATIENCE_SECONDS, TIMEOUT_SECONDS, Client
from jobyard.client.jobs import RemoteJob
from jobyard.domain.job_options import JobOptions, Seconds
from jobyard.errors import JobyardError
from jobyard.operations.loop_thread import LoopThread

END = object()
P = ParamSpec("P")
T = TypeVar("T")


def waits(verb: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[BlockingClient, P], T]:
    @functools.wraps(verb)
    def wait(self: BlockingClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.wait(verb(self.client, *args, **kwargs))

    return wait


def walks(
    verb: Callable[Concatenate[Any, P], AsyncIterator[T]],
) -> Callable[Concatenate[BlockingClient, P], Iterator[T]]:
    @functools.wraps(verb)
    def walk(self: BlockingClient, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        found: Any = verb(self.client, *args, **kwargs)
        try:
            while (item := self.wait(_next(found))) is not END:
                yield item
        finally:
            if self._thread.is_running:
                self.wait(_close(found))

    return walk


async def _next(found: Any) -> Any:
    return await anext(found, END)


async def _close(found: Any) -> None:
    await found.aclose()


class BlockingJob:
    """A job on a server; see RemoteJob."""

    def __init__(self, client: BlockingClient, job: RemoteJob) -> None:
        self._client = client
        self._job = job
        self.id = job.id
        self.created = job.created

    def result(self, timeout: Seconds | None = None) -> Any:
        return self._client.wait(self._job.result(timeout))

    def wait(self, timeout: Seconds | None = None) -> JobView:
        return self._client.wait(self._job.wait(timeout))

    def info(self) -> JobView:
        return self._client.wait(self._job.info())

    def explain(self) -> ExplanationView:
        return self._client.wait(self._job.explain())

    def cancel(self, reason: str = "") -> None:
        self._client.wait(self._job.cancel(reason))

    def retry(self) -> None:
        self._client.wait(self._job.retry())

    def delete(self) -> None:
        self._client.wait(self._job.delete())

    def run_now(self) -> None:
        self._client.wait(self._job.run_now())

    def prioritise(self, priority: int) -> None:
        self._client.wait(self._job.prioritise(priority))

    def signal(self, name: str, data: Any = None, *, signal_id: str | None = None) -> bool:
        return self._client.wait(self._job.signal(name, data, signal_id=signal_id))

    def __repr__(self) -> str:
        return f"<BlockingJob {self.id}>"


class BlockingClient:
    """`with BlockingClient("https://jobs.example.org") as client: client.enqueue("send_mail", {...}).result(60)`.

    Any number of threads may use it at once. Without `with`: `open()` and `close()`.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: float = TIMEOUT_SECONDS,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        self.client = Client(url, token, timeout=timeout, patience=patience)
        self._thread = LoopThread("jobyard-client")

    def wait(self, verb: Coroutine[Any, Any, T]) -> T:
        return self._thread.wait(verb)

    def open(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Calls that still wait in other threads raise CancelledError. Safe twice."""
        if self._thread.is_running:
            try:
                self.wait(self.client.close())
            finally:
                self._thread.end()

    def __enter__(self) -> BlockingClient:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<BlockingClient {self.client.url}>"

    def enqueue(self, kind: str, payload: Any = None, **options: Unpack[JobOptions]) -> BlockingJob:
        return BlockingJob(self, self.wait(self.client.enqueue(kind, payload, **options)))

    def enqueue_many(self, jobs: list[JobRequest]) -> list[BlockingJob | JobyardError]:
        found = self.wait(self.client.enqueue_many(jobs))
        return [BlockingJob(self, each) if isinstance(each, RemoteJob) else each for each in found]

    def job_handle(self, job_id: str) -> BlockingJob:
        return BlockingJob(self, self.client.job_handle(job_id))

    get = waits(Client.get)
    result = waits(Client.result)
    end = waits(Client.end)
    page = waits(Client.page)
    jobs = walks(Client.jobs)
    dead_letters = walks(Client.dead_letters)
    explain = waits(Client.explain)
    cancel = waits(Client.cancel)
    retry = waits(Client.retry)
    run_now = waits(Client.run_now)
    prioritise = waits(Client.prioritise)
    delete = waits(Client.delete)
    signal = waits(Client.signal)
    change = waits(Client.change)
    redrive = waits(Client.redrive)

    queues = waits(Client.queues)
    queue = waits(Client.queue)
    configure = waits(Client.configure)
    reset_settings = waits(Client.reset_settings)
    remove_queue = waits(Client.remove_queue)
    pause = waits(Client.pause)
    resume = waits(Client.resume)
    drain = waits(Client.drain)
    groups = walks(Client.groups)
    set_limit = waits(Client.set_limit)
    remove_limit = waits(Client.remove_limit)
    workers = waits(Client.workers)
    quiet = waits(Client.quiet)
    stop = waits(Client.stop)
    kinds = waits(Client.kinds)

    schedules = walks(Client.schedules)
    schedule = waits(Client.schedule)
    add_schedule = waits(Client.add_schedule)
    edit_schedule = waits(Client.edit_schedule)
    remove_schedule = waits(Client.remove_schedule)
    pause_schedule = waits(Client.pause_schedule)
    resume_schedule = waits(Client.resume_schedule)
    run_schedule = waits(Client.run_schedule)
    next_of_schedule = waits(Client.next_of_schedule)
    next_of_cron = waits(Client.next_of_cron)
    schedule_history = walks(Client.schedule_history)

    runner_jobs = walks(Client.runner_jobs)
    runner_job = waits(Client.runner_job)
    runner_pods = walks(Client.runner_pods)
    runner_orgs = waits(Client.runner_orgs)
    requeue_runner_job = waits(Client.requeue_runner_job)

    workflows = waits(Client.workflows)
    run_workflow = waits(Client.run_workflow)
    workflow_run = waits(Client.workflow_run)
    cancel_workflow = waits(Client.cancel_workflow)
    history = walks(Client.history)

    me = waits(Client.me)
    tokens = waits(Client.tokens)
    create_token = waits(Client.create_token)
    rotate_token = waits(Client.rotate_token)
    revoke_token = waits(Client.revoke_token)
    audit = walks(Client.audit)
    health = waits(Client.health)

    events = walks(Client.events)
    job_events = walks(Client.job_events)

    execute = waits(Client.execute)
    execution = waits(Client.execution)
    output = walks(Client.output)
    languages = waits(Client.languages)
