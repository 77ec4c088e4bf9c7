"""`jobyard runners manager` and `jobyard up` as processes: they run, serve metrics of runners, and stop on SIGTERM."""

from __future__ import annotations

import json
import signal
import time
import urllib.error
import urllib.request

import pytest
from tests.cli.support import Shop
from tests.cli.support import shop as shop  # noqa: PLC0414  # a fixture
from tests.github.runner_site import RunnerSite
from tests.github.test_runner_cli import GitHubThread, Runners
from tests.github.test_runner_cli import github as github  # noqa: PLC0414  # a fixture
from tests.servers.ports import free_port

DEADLINE_SECONDS = 60.0


@pytest.mark.parametrize("command", ["manager", "up"])
def test_manager_serves_metrics_and_stops(shop: Shop, github: GitHubThread, command: str) -> None:
    runners = Runners(shop.folder, github)

    async def receive(site: RunnerSite) -> None:
        await site.receive("acme", labels=("gpu",))

    runners.do(receive)
    port = free_port()
    runners.run("runners")  # writes the configuration
    path = shop.folder / "jobyard.yaml"
    document = json.loads(path.read_text())
    document["worker"] = {"health_port": port, "health_host": "127.0.0.1"} if command == "manager" else {}
    path.write_text(json.dumps(document))
    words = ("runners", "manager") if command == "manager" else ("up", "--insecure", "--port", str(port))
    with shop.start(*words) as process:
        text = ""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while "jobyard_runner_slots" not in text:
            assert process.poll() is None
            assert time.monotonic() < deadline, text[-2000:]
            text = scrape(port)
        assert "jobyard_runner_slots 5.0" in text
        assert "jobyard_runner_lost_jobs_found_total" in text
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_SECONDS) == 0


def scrape(port: int) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as response:
            return str(response.read().decode())
    except (urllib.error.URLError, ConnectionError):
        time.sleep(0.05)
        return ""
