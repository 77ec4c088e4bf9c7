"""Fixtures: one daemon for all tests that do not harm it, in the best tier of this machine."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator

import pytest
from tests.sandbox.machine_tiers import require_tier
from tests.sandbox.wide_fixtures import in_own_loop

from jobyard.sandbox.attacks.connection import DaemonConnection, connect
from jobyard.sandbox.attacks.private_daemon import PrivateDaemon, private_daemon

SLOTS = (os.cpu_count() or 1) + 1  # more than there are cores


@pytest.fixture(scope="session")
def daemon() -> Iterator[PrivateDaemon]:
    with in_own_loop(private_daemon(slots=SLOTS)) as made:
        yield made


@pytest.fixture
async def connection(daemon: PrivateDaemon) -> AsyncIterator[DaemonConnection]:
    async with connect(daemon.socket) as made:
        require_tier(await made.ready())
        yield made
