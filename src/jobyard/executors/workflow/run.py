"""One attempt of a workflow: replay what is recorded, go on, and free the slot while everything waits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn

from jobyard.domain.history import Wake
from jobyard.domain.instant import Instant
from jobyard.domain.outcome import Outcome, Park, Snooze
from jobyard.errors import UnknownKind
from jobyard.executors.workflow.journal import Journal, Scope, current_scope
from jobyard.executors.workflow.records import PART, WorkflowRecord
from jobyard.ports.executor import Attempt
from jobyard.ports.store import Store

# Event loop turns without work before the slot is freed. A branch that ends needs a few turns per level of nesting
# until the function that awaits it goes on; with too few, the function would be suspended just before that.
QUIET_TURNS = 100
# Running time of a segment that is worth a record; shorter ones do not count towards the timeout.
MIN_COUNTED_SECONDS = 1.0


class Wait(NamedTuple):
    """What a blocked operation waits for: a delivery, an instant, or either."""

    label: str
    wake: Wake | None = None
    until: Instant | None = None


class OutOfTime(BaseException):
    """The workflow has worked for longer than its timeout."""


class MissingKind(BaseException):
    """Ends the attempt: this worker does not know a kind that the workflow needs, and another one may."""

    def __init__(self, error: UnknownKind) -> None:
        super().__init__(str(error))
        self.error = error


@contextmanager
def contained_exit() -> Iterator[None]:
    """Turn sys.exit() into an error: raised in a task, it would end the event loop, and with it the whole worker."""
    try:
        yield
    except (SystemExit, KeyboardInterrupt) as error:
        raise RuntimeError(f"the workflow raised {type(error).__name__}: {error}") from error


class WorkScope:
    """Keeps the slot inside `with`; one object for all operations of a run, because each of them enters it."""

    __slots__ = ("_run",)

    def __init__(self, run: WorkflowRun) -> None:
        self._run = run

    def __enter__(self) -> None:
        self._run.begin_work()

    def __exit__(self, *_: object) -> None:
        self._run.end_work()


class WorkflowRun:
    """Runs the function, and knows which of its operations work and which wait."""

    def __init__(self, attempt: Attempt, store: Store, journal: Journal) -> None:
        self.attempt = attempt
        self.store = store
        self.journal = journal
        self.is_ending = False
        self.is_suspended = False
        self.is_stopped = False  # from outside
        # Of a workflow file: its on_failure steps, called with why the run ends and whether they have killed workers.
        # Returns what of them failed.
        self.on_failure: Callable[[str, bool], Awaitable[list[str]]] | None = None
        self._working = WorkScope(self)
        self._active = 0
        self._quiet_turns = 0
        self._waits: list[Wait] = []
        self._suspended_on: list[Wait] = []
        self._task: asyncio.Task[Any] | None = None
        self._began = time.monotonic()

    async def call(self, function: Callable[[], Awaitable[Any]], timeout_seconds: float | None) -> Any:
        """The function's result. Raises CancelledError with `is_suspended` set when everything waits.

        Raises OutOfTime when it has worked for longer than the timeout.
        """

        async def main() -> Any:
            current_scope.set(Scope(""))
            with contained_exit():
                return await function()

        self._task = task = asyncio.get_running_loop().create_task(main())
        try:
            done, _ = await asyncio.wait({task}, timeout=timeout_seconds)
        except asyncio.CancelledError:
            self.is_stopped = True
            task.cancel()
            await asyncio.wait({task})
            if not task.cancelled():
                task.exception()
            raise
        if not done:
            task.cancel()
            await asyncio.wait({task})
            if task.cancelled() or task.exception() is not None:
                raise OutOfTime
        return task.result()

    def working(self) -> WorkScope:
        """Around everything that keeps the slot: a running step, a write, a read."""
        return self._working

    def begin_work(self) -> None:
        self._require_lease()
        self._active += 1

    def end_work(self) -> None:
        self._active -= 1
        if self._waits:
            self._look_for_rest()

    def _require_lease(self) -> None:
        """Cancelled, because code of the workflow may catch every other exception and go on."""
        if self.is_suspended or self.journal.is_lost:
            raise asyncio.CancelledError

    async def require_going_on(self, *, is_new: bool = False) -> None:
        """Stop the replay of a workflow that is being ended where its records end.

        The other branches are replayed meanwhile: they may have recorded undo steps. Raises NonDeterminism if the
        operation is new, and others that were recorded have yet to come.
        """
        if self.is_ending:
            await self._wait((Wait("its end"),))
        if is_new:
            self.journal.require_no_unread()

    def is_function(self) -> bool:
        """Whether the function itself runs now, and not a branch of it: while it waits, nothing else can go on."""
        return asyncio.current_task() is self._task

    async def block(self, *waits: Wait) -> NoReturn:
        """Wait for any of these until the attempt is suspended; the next one finds what it waits for."""
        await self.require_going_on()
        await self._wait(waits)

    async def _wait(self, waits: tuple[Wait, ...]) -> NoReturn:
        self._require_lease()
        if self.is_function():
            self.is_suspended, self._suspended_on = True, list(waits)
            raise asyncio.CancelledError
        self._waits += waits
        self._look_for_rest()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            for wait in waits:
                self._waits.remove(wait)
        raise AssertionError("a blocked operation is cancelled, not resolved")

    def _look_for_rest(self) -> None:
        """Suspend the attempt once everything waits and nothing has happened for some turns of the event loop."""
        is_looking, self._quiet_turns = self._quiet_turns > 0, QUIET_TURNS
        if not is_looking:
            self._count_quiet_turn()

    def _count_quiet_turn(self) -> None:
        if self._active or not self._waits or self.is_suspended or self._task is None:
            self._quiet_turns = 0
            return
        self._quiet_turns -= 1
        if self._quiet_turns > 0:
            asyncio.get_running_loop().call_soon(self._count_quiet_turn)
            return
        self.is_suspended = True
        self._suspended_on = list(self._waits)
        self._task.cancel()

    def begin_undo(self) -> None:
        """The function has come to its end; undo steps are run by the same attempt."""
        self.is_ending = self.is_suspended = False

    async def suspend(self, waits: list[Wait] | None = None) -> Outcome:
        """The outcome that frees the slot until one of the waits is over."""
        waits = self._suspended_on if waits is None else waits
        await self._count_running_time()
        # Who waits for a single thing finds it at the next attempt, and asks for nothing else before.
        await self.journal.flush(optional=len(waits) > 1)
        wakes = tuple(dict.fromkeys(wait.wake for wait in waits if wait.wake is not None))
        instants = [wait.until for wait in waits if wait.until is not None]
        seconds = max(0.0, (min(instants) - await self.journal.now()) / 1000) if instants else None
        if not wakes:
            return Snooze(seconds or 0.0)
        labels = list(dict.fromkeys(wait.label for wait in waits))
        more = f" and {len(labels) - 1} more" if len(labels) > 1 else ""
        return Park(labels[0] + more, seconds, wakes)

    async def _count_running_time(self) -> None:
        lease, seconds = self.attempt.lease, time.monotonic() - self._began
        if lease.timeout_seconds is None or seconds < MIN_COUNTED_SECONDS:
            return
        number = sum(key.startswith(f"{PART}ran{PART}") for key in self.journal.entries) + 1
        self.journal.note(f"{PART}ran{PART}{number}", WorkflowRecord(seconds=seconds, attempt=lease.attempt))

    def remaining_seconds(self) -> float | None:
        """The timeout less the running time of earlier segments of this attempt."""
        lease = self.attempt.lease
        if lease.timeout_seconds is None:
            return None
        ran = sum(
            each.record.seconds or 0.0
            for key, each in self.journal.entries.items()
            if key.startswith(f"{PART}ran{PART}") and each.record.attempt == lease.attempt
        )
        return max(0.001, lease.timeout_seconds - ran)
