"""The manager as a process: its health, and runners that are processes of the same machine."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx2 as httpx
import pytest
from tests.github.runner_story import PROFILE, RunnerStory, runner_story
from tests.servers.ports import free_port

pytestmark = [pytest.mark.story, pytest.mark.timeout(300)]

# What the real program does, with the control API of the fake GitHub; the configuration must not be in its arguments.
RUN = """#!/bin/sh
printf %s "$ACTIONS_RUNNER_INPUT_JITCONFIG" | exec curl --silent --fail --data-binary @- URL/_control/run
"""


async def test_health_of_a_manager_and_of_up(tmp_path: Path) -> None:
    async with runner_story(tmp_path, "sqlite", ("acme",)) as story:
        port = free_port()
        story.start("runners", "manager", "--health-port", str(port))
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as manager:

            async def is_ready() -> bool:
                try:
                    return (await manager.get("/readyz")).status_code == 200
                except httpx.HTTPError:
                    return False

            await story.until(is_ready, "the manager is ready")
            assert (await manager.get("/livez")).json()["status"] == "ok"
            checks = (await manager.get("/health")).json()["checks"]
            assert {check["name"]: check["ok"] for check in checks}["claiming"]
            assert "jobyard_runner_minutes_this_month" in (await manager.get("/metrics")).text
        await story.start_up()
        checks = (await story.http.get("/health")).json()["checks"]
        assert {check["name"]: check["ok"] for check in checks}["claiming"]


class Machine:
    """A folder with the runner program, and the folder in which the manager makes a copy for each runner."""

    def __init__(self, story: RunnerStory) -> None:
        self.story = story
        self.source, self.work = story.folder / "actions-runner", story.folder / "runners"
        self.source.mkdir()
        self.work.mkdir()
        program = self.source / "run.sh"
        program.write_text(RUN.replace("URL", story.world.github_url))
        program.chmod(0o755)
        folders = {"runner_folder": str(self.source), "work_folder": str(self.work)}
        cluster = {"backend": "process", **folders}
        profile = {name: value for name, value in PROFILE.items() if name != "image"} | {"cluster": "here"}
        story.configure(max_per_org=2, clusters={"here": cluster}, profiles=[profile])

    def names(self) -> list[str]:
        return sorted(folder.name for folder in self.work.iterdir() if folder.name.startswith("jy-"))

    def pids(self) -> Iterator[int]:
        for name in self.names():
            yield int((self.work / name / "control" / "pid").read_text().split()[0])


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
async def test_processes_as_runners(tmp_path: Path) -> None:
    """The limits hold, a killed manager does not end them, and its successor adopts them."""
    async with runner_story(tmp_path, "sqlite", ("acme",)) as story:
        machine = Machine(story)
        first = await story.start_up()
        story.queue({"acme": 5})
        await story.all_run(acme=2)
        before, pids = machine.names(), list(machine.pids())
        assert len(before) == 2
        first.kill()
        first.wait()
        await story.start_up()

        async def adopted() -> bool:
            pods = (await story.http.get("/v1/runners/pods")).json()["items"]
            return sorted(pod["name"] for pod in pods if pod["state"] == "busy") == before

        await story.until(adopted, "the runners are known again")
        assert (machine.names(), list(machine.pids()), story.running()) == (before, pids, {"acme": 2})
        story.release()
        await story.ends()
        await story.until(lambda: machine.names() == [], "their folders are removed")
