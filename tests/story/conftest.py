"""The harness fixture of each story."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.story.engines import empty_store
from tests.story.harness import Harness
from tests.story.sizes import SOAK

collect_ignore = ["worker.py"]  # an application: importing it begins a process of a story
MEMORY = Path("/dev/shm")
ENOUGH_BYTES = 1 << 30


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Path]:
    """In memory for `make test`: what a killed process wrote outlives it there as well, and a disk that is busy with
    other things cannot make leases run out. `make soak` uses the disk."""
    if SOAK or not MEMORY.is_dir() or shutil.disk_usage(MEMORY).free < ENOUGH_BYTES:
        yield tmp_path
        return
    folder = Path(tempfile.mkdtemp(prefix="jobyard-story-", dir=MEMORY))
    yield folder
    shutil.move(folder, tmp_path / "stage")


@pytest.fixture
def engine() -> str:
    """Stories on other stores name them: see `engines.on_every_store`."""
    return "sqlite"


@pytest.fixture
def url(engine: str, stage: Path) -> Iterator[str]:
    with empty_store(engine, stage) as url:
        yield url


@pytest.fixture
def through() -> str:
    """Another way to the store, for the processes of a story; empty: the same."""
    return ""


@pytest.fixture
async def harness(request: pytest.FixtureRequest, stage: Path, url: str, through: str) -> AsyncIterator[Harness]:
    title = str(request.node.name).removeprefix("test_").replace("_", " ")
    harness = Harness(stage, title, url, through)
    try:
        async with harness.yard:
            yield harness
    finally:
        harness.clear()
