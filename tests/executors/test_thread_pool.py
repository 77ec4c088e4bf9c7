"""Threads of blocking handlers."""

from __future__ import annotations

import asyncio

import pytest

from jobyard.executors.python.thread_pool import Interrupted, ThreadCall


async def test_a_call_that_was_interrupted_before_a_thread_was_free_does_not_run() -> None:
    ran: list[int] = []
    call = ThreadCall(lambda: ran.append(1), asyncio.get_running_loop())
    call.interrupt(Interrupted)
    call.perform()()
    with pytest.raises(Interrupted):
        await call.future
    assert ran == []
