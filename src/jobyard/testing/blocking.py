"""The test kit for synchronous tests: the same names as in `jobyard.testing`, without await."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from jobyard.api.schemas.jobs import JobView
from jobyard.app.jobyard import Jobyard
from jobyard.app.sync import Blocking
from jobyard.operations.loop_thread import LoopThread
from jobyard.testing import kit
from jobyard.testing.clock import ManualClock
from jobyard.testing.kit import Isolated, KindOrJob

__all__ = ["BlockingIsolated", "assert_enqueued", "drain", "inline", "isolated", "refute_enqueued"]


@dataclass(frozen=True)
class BlockingIsolated(Isolated):
    """A yard with a store of its own, for one test; `wait(task.enqueue(1))` uses it, as any `yard.blocking()` does."""

    wait: Blocking


@contextmanager
def isolated(yard: Jobyard, *, url: str = "memory://", clock: ManualClock | None = None) -> Iterator[BlockingIsolated]:
    """Give the yard a fresh store with a manual clock; its own store is restored afterwards."""
    with _entered(yard, kit.isolated(yard, url=url, clock=clock)) as test:
        yield test


@contextmanager
def inline(yard: Jobyard, *, clock: ManualClock | None = None) -> Iterator[BlockingIsolated]:
    """Like `isolated`, but each enqueue returns only after its job has run; see `jobyard.testing.inline`."""
    with _entered(yard, kit.inline(yard, clock=clock)) as test:
        yield test


@contextmanager
def _entered(yard: Jobyard, context: AbstractAsyncContextManager[Isolated]) -> Iterator[BlockingIsolated]:
    thread = LoopThread("jobyard-testing")
    thread.start()
    try:
        test = thread.wait(context.__aenter__())
        try:
            yield BlockingIsolated(test.yard, test.store, test.clock, yard.blocking())
        finally:
            thread.wait(context.__aexit__(None, None, None))
    finally:
        thread.end()


def drain(
    yard: Jobyard, *, queues: Sequence[str] = (), until_empty: bool = True, with_delayed: bool = False
) -> list[JobView]:
    """Run the due jobs one after the other, without a worker; see `jobyard.testing.drain`."""
    return yard.blocking()(kit.drain(yard, queues=queues, until_empty=until_empty, with_delayed=with_delayed))


def assert_enqueued(
    yard: Jobyard,
    kind: KindOrJob,
    *,
    queue: str | None = None,
    group: str | None = None,
    payload: Mapping[str, Any] | None = None,
    count: int | None = None,
) -> list[JobView]:
    """Assert that such a job was enqueued (`count` of them, if given) and return the matching jobs, oldest first."""
    return yard.blocking()(kit.assert_enqueued(yard, kind, queue=queue, group=group, payload=payload, count=count))


def refute_enqueued(
    yard: Jobyard,
    kind: KindOrJob,
    *,
    queue: str | None = None,
    group: str | None = None,
    payload: Mapping[str, Any] | None = None,
) -> None:
    """Assert that no such job was enqueued."""
    yard.blocking()(kit.refute_enqueued(yard, kind, queue=queue, group=group, payload=payload))
