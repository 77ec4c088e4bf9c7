"""Detection of handlers that block the event loop."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from itertools import dropwhile
from types import FrameType

from jobyard import executors
from jobyard.domain.events import EventLoopBlocked
from jobyard.domain.lease import Lease
from jobyard.observability.current import current_lease
from jobyard.ports.observer import Emit
from jobyard.worker.attempt import JobAttempt

BLOCKED_AFTER_SECONDS = 5.0
# The innermost calls are the ones that block; a deep recursion would fill the log.
MAX_FRAMES = 30


class EventLoopMonitor:
    """Pings the event loop from another thread; created in the thread of the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, emit: Emit) -> None:
        self.is_blocked = False  # at the last check, the ping before it was unanswered
        self.loop = loop
        self._thread_id = threading.get_ident()
        self._emit = emit
        self._pinged_at: float | None = None  # None: the last ping was answered
        self._is_reported = False

    def check(self) -> None:
        pinged_at = self._pinged_at
        self.is_blocked = pinged_at is not None
        if pinged_at is None:
            if not self.loop.is_closed():
                self._pinged_at = time.monotonic()
                self.loop.call_soon_threadsafe(self._answer)
            return
        blocked = time.monotonic() - pinged_at
        if blocked > BLOCKED_AFTER_SECONDS and not self._is_reported:
            self._is_reported = True
            frames = frames_of(self._thread_id)
            lease, stack = lease_in(frames, self.loop), handler_stack(frames)
            if self._pinged_at is not None:  # the loop is still blocked, so this is the stack of what blocks it
                self._emit(EventLoopBlocked(blocked, lease, stack))

    def _answer(self) -> None:
        self._pinged_at = None
        self._is_reported = False


def frames_of(thread_id: int) -> list[FrameType]:
    """The frames of a thread, innermost last."""
    frame = sys._current_frames().get(thread_id)
    found: list[FrameType] = []
    while frame is not None:
        found.append(frame)
        frame = frame.f_back
    return found[::-1]


def lease_in(frames: list[FrameType], loop: asyncio.AbstractEventLoop) -> Lease | None:
    """The lease of the attempt that the frames run, or of the attempt that started the current task."""
    for frame in frames:
        if frame.f_code is ATTEMPT and isinstance(attempt := frame.f_locals.get("self"), JobAttempt):
            return attempt.lease
    context_of = getattr(asyncio.current_task(loop), "get_context", None)  # since Python 3.12
    return None if context_of is None else context_of().get(current_lease)


def handler_stack(frames: list[FrameType]) -> tuple[str, ...]:
    """The calls of the handler; all calls if no attempt is among them."""
    codes = [frame.f_code for frame in frames]
    own = frames[codes.index(ATTEMPT) + 1 :] if ATTEMPT in codes else frames
    own = list(dropwhile(lambda frame: frame.f_code.co_filename.startswith(EXECUTORS), own)) or own
    found = traceback.StackSummary.extract((frame, frame.f_lineno) for frame in own[-MAX_FRAMES:])
    return tuple(found.format())


ATTEMPT = JobAttempt._run.__code__
EXECUTORS = executors.__path__[0]
