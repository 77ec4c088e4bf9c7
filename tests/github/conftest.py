"""Fixtures of the runner manager's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.github.scripted_server import ScriptedServer, scripted_server


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with scripted_server() as found:
        yield found
