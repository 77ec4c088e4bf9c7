"""Fixtures: one daemon for all tests that do not harm it, in the best tier of this machine."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack

import pytest
from tests.sandbox.machine_tiers import require_tier

from jobyard.sandbox.attacks.connection import DaemonConnection, connect
from jobyard.sandbox.attacks.private_daemon import PrivateDaemon, private_daemon

SLOTS = (os.cpu_count() or 1) + 1  # more than there are cores


@pytest.fixture(scope="session")
def daemon() -> Iterator[PrivateDaemon]:
    loop, stack = asyncio.new_event_loop(), AsyncExitStack()
    try:
        yield loop.run_until_complete(stack.enter_async_context(private_daemon(slots=SLOTS)))
    finally:
        loop.run_until_complete(stack.aclose())
        loop.close()


@pytest.fixture
async def connection(daemon: PrivateDaemon) -> AsyncIterator[DaemonConnection]:
    async with connect(daemon.socket) as made:
        require_tier(await made.ready())
        yield made
