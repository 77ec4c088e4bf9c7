"""A worker as a server shows it, as commands and programs know workers."""

from __future__ import annotations

from datetime import UTC, datetime

from jobyard.api.schemas.queues import WorkerView
from jobyard.client.convert import worker_of


def test_what_only_a_server_tells_of_a_worker_is_left_out() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    view = WorkerView(
        id="w", host="h", pid=1, queues=(), concurrency=2, running=None, completed=3, quiet=False, started_at=at,
        seen_at=at, is_lost=True, jobs=(),
    )  # fmt: skip
    found = worker_of(view)
    assert (found.id, found.running, found.completed, found.memory_bytes, found.cpu_percent) == ("w", 0, 3, 0, 0.0)
