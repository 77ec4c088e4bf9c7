"""The minimal client of attacks and tests."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.sandbox.fake_daemon import daemon

from jobyard.sandbox.attacks.connection import connect
from jobyard.sandbox.protocol import RunRequest


async def test_cancellation_that_arrives_with_the_response_is_not_swallowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """asyncio.wait_for would return the response before Python 3.12: a selftest ignored SIGTERM that way."""
    async with daemon(tmp_path) as fake, connect(Path(fake.path)) as connection:
        begin = connection.begin

        def begin_and_cancel_on_response(*given: Any) -> Any:
            run_id, response = begin(*given)
            response.add_done_callback(lambda _: task.cancel())
            return run_id, response

        monkeypatch.setattr(connection, "begin", begin_and_cancel_on_response)
        task = asyncio.create_task(connection.run(RunRequest(id=0, language="python", source=b"out x")))
        with pytest.raises(asyncio.CancelledError):
            await task
