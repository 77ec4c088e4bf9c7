"""A server for each test, without the token of the environment."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.client.support import Site, site

from jobyard.client import Client


@pytest.fixture(autouse=True)
def no_token_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("JOBYARD_TOKEN", "JOBYARD_TOKEN_FILE", "JOBYARD_SERVER", "API_URL", "JOBYARD_STORE"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Site]:
    async with site(tmp_path) as found:
        yield found


@pytest.fixture
async def client(here: Site) -> AsyncIterator[Client]:
    async with here.client() as found:
        yield found
