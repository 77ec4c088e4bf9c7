"""`jobyard up` fires schedules that come by API while it runs, and counts them; without its scheduler it does not."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.story.up import Up, starting, until

pytestmark = pytest.mark.story

SCHEDULE = {"expression": "*/2 * * * * *", "kind": "gate", "payload": {"name": "a"}, "overlap": "allow"}


def add(up: Up, name: str) -> None:
    response = up.client.post("/v1/schedules", json=SCHEDULE | {"name": name})
    assert response.status_code == 201, response.text


def ticks(up: Up) -> int:
    line = r'^jobyard_schedule_ticks_total\{verdict="fired"\} (\d+)'
    found = re.search(line, up.client.get("/metrics").text, re.MULTILINE)
    return 0 if found is None else int(found[1])


def history(up: Up, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = up.client.get(f"/v1/schedules/{name}/history").json()["items"]
    return found


def coming(up: Up) -> list[str]:
    found: list[str] = up.client.get("/v1/schedules/often/next").json()["items"]
    return found


def test_a_schedule_made_by_api_fires_at_once_until_it_is_paused(tmp_path: Path) -> None:
    with starting(tmp_path, "up", JOBYARD_SCHEDULER__SHORTEST_INTERVAL_SECONDS="1") as up:
        up.greet()
        add(up, "often")
        add(up, "other")
        until("two instants", lambda: len(history(up, "often")) >= 2)
        until("they are counted", lambda: ticks(up) >= 2)
        assert {each["verdict"] for each in history(up, "often")} == {"fired"}
        up.client.post("/v1/schedules/often/pause")
        seen, others = history(up, "often"), len(history(up, "other"))
        until("the other one fires twice more", lambda: len(history(up, "other")) >= others + 2)
        assert [each["at"] for each in history(up, "often")] == [each["at"] for each in seen]
        up.flags.put("open-a")
        up.process.send_signal(signal.SIGTERM)
        assert up.end() == 0


def test_without_a_scheduler_nothing_fires(tmp_path: Path) -> None:
    with starting(
        tmp_path, "up", JOBYARD_SCHEDULER__SHORTEST_INTERVAL_SECONDS="1", JOBYARD_SCHEDULER__ENABLED="false"
    ) as up:
        up.greet()
        add(up, "often")
        second = coming(up)[1]
        until("two instants are over", lambda: coming(up)[0] > second)
        assert history(up, "often") == []
        up.process.send_signal(signal.SIGTERM)
        assert up.end() == 0
    assert "jobyard.scheduler" not in up.said()
