"""Gives each story a stage, and clears it whatever happened."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.story.scene import Scene


@pytest.fixture
async def scene(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Scene]:
    title = str(request.node.name).removeprefix("test_").replace("_", " ")
    scene = Scene(tmp_path, title)
    try:
        async with scene.yard:
            yield scene
    finally:
        scene.clear()
