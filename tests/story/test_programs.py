"""Programs with the real daemon: a killed worker or daemon leaves no process behind, and the job runs again."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests import fork_server
from tests.sandbox.machine_tiers import best_tier
from tests.story.engines import on_every_store
from tests.story.up import Up, alive, starting, until
from tests.support import PATIENCE_SECONDS, ROOT

from jobyard.sandbox.protocol import Tier

pytestmark = [pytest.mark.story, pytest.mark.timeout(300)]

LANGUAGES = ROOT / "src/jobyard/sandbox/languages.yaml"
# Recognised among all processes of the machine: no other process sleeps this long.
SLOW = "import time\nprint('begun', flush=True)\ntime.sleep({seconds})\nprint('done')"


@pytest.fixture(scope="module")
def can_run() -> None:
    """Whether the sandbox works on this machine is tested in tests/sandbox."""
    response = fork_server.run("jobyard", ["sandbox", "status", "--json"], environment=os.environ, folder=ROOT)
    if response.returncode != 0:
        assert best_tier() not in (Tier.A, Tier.B), response.stderr
        pytest.skip(f"no sandbox here: {response.stdout[-200:]}{response.stderr[-200:]}")


@pytest.fixture(scope="module")
def variables(can_run: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Python alone: a daemon checks each of its languages when it starts, which takes compilers some seconds."""
    languages = tmp_path_factory.mktemp("languages") / "languages.yaml"
    languages.write_text(yaml.safe_dump({"python": yaml.safe_load(LANGUAGES.read_text())["python"]}))
    return {
        "JOBYARD_SANDBOX__MIN_TIER": "C",
        "JOBYARD_SANDBOX__LANGUAGES": str(languages),
        "JOBYARD_SANDBOX__MAX_TIME_SECONDS": "3600",
    }


@pytest.fixture
def up(variables: dict[str, str], tmp_path: Path) -> Iterator[Up]:
    with with_sandbox(tmp_path, variables) as up:
        yield up


@pytest.fixture(scope="module")
def lasting(variables: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """For tests that end no process of it: starting the sandbox takes longer than most of them."""
    with with_sandbox(tmp_path_factory.mktemp("lasting"), variables) as up:
        yield up


@contextmanager
def with_sandbox(folder: Path, variables: dict[str, str]) -> Iterator[Up]:
    with starting(folder, "up", "--sandbox", "--lease-seconds", "1", app=True, **variables) as up:
        up.greet()
        until("the sandbox is known", lambda: up.client.get("/languages").json()["items"])
        yield up


def execute(up: Up, source: str, wait: float = 0, **given: Any) -> dict[str, Any]:
    body = {"language": "python", "source_code": source, "limits": {"time_seconds": 30}, **given}
    response = up.client.post("/execute", params={"wait": wait}, json=body)
    assert response.status_code in (200, 202), response.text
    found: dict[str, Any] = response.json()
    return found


def pid_of(up: Up, says: str) -> int:
    return int(re.findall(rf"{says}.*?pid (\d+)", up.said())[-1])


def family(pid: int) -> set[int]:
    """The process and all below it."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text()
        except OSError:
            continue
        parents.setdefault(int(text.rpartition(")")[2].split()[1]), []).append(int(path.parent.name))
    found, left = {pid}, [pid]
    while left:
        for child in parents.get(left.pop(), ()):
            found.add(child)
            left.append(child)
    return found


def until_begun(up: Up, job_id: str) -> None:
    """Follow the output until the program has said so."""
    with up.client.stream("GET", f"/jobs/{job_id}/output") as response:
        assert any("begun" in line for line in response.iter_lines())


def ended(up: Up, job_id: str) -> dict[str, Any]:
    body: dict[str, Any] = until("it ended", lambda: done(up, job_id))
    return body


def done(up: Up, job_id: str) -> dict[str, Any] | None:
    body: dict[str, Any] = up.client.get(f"/jobs/{job_id}").json()
    return body if "result" in body or "reason" in body else None


def test_a_program_is_run_and_nothing_of_it_is_seen(up: Up) -> None:
    body = execute(up, "print(input()[::-1])  # SECRET", 60, input="abc\n")
    assert (body["status"], body["result"]["stdout"], body["result"]["verdict"]) == ("COMPLETED", "cba\n", "OK")
    assert "SECRET" not in up.client.get(f"/v1/jobs/{body['job_id']}").text
    assert "SECRET" not in up.said()
    up.process.send_signal(signal.SIGTERM)
    assert up.end() == 0
    assert not alive(pid_of(up, "sandbox daemon started"))


@on_every_store
def test_run_followed_and_many_at_once(variables: dict[str, str], tmp_path: Path, engine: str, url: str) -> None:
    with starting(tmp_path, "up", "--sandbox", app=True, **variables, JOBYARD_STORE=url) as up:
        up.greet()
        until("the sandbox is known", lambda: up.client.get("/languages").json()["items"])
        lines = "import time\nfor n in range(4):\n  print(n, flush=True)\n  time.sleep(0.3)"
        job_id = execute(up, lines)["job_id"]
        with up.client.stream("GET", f"/jobs/{job_id}/output") as response:
            names = [line[7:] for line in response.iter_lines() if line.startswith("event: ")]
        assert (names[0], names[-1]) == ("stdout", "finished")
        batch = {"language": "python", "source_code": "print(int(input()) ** 2)", "inputs": ["1", "2", "3"]}
        body = up.client.post("/execute/batch", params={"wait": 60}, json=batch).json()
        assert [run["stdout"] for run in body["result"]["results"]] == ["1\n", "4\n", "9\n"]
        gate = up.enqueue("a")
        up.flags.put("open-a")
        until("a handler ran beside it", lambda: up.job(gate)["state"] == "COMPLETED")
        up.process.send_signal(signal.SIGTERM)
        assert up.end() == 0


def test_a_killed_worker_leaves_no_program_and_the_job_runs_again(up: Up) -> None:
    worker, daemon = pid_of(up, "worker process 1 started"), pid_of(up, "sandbox daemon started")
    # Longer than the test waits for the end of its processes.
    job_id = execute(up, SLOW.format(seconds=2 * PATIENCE_SECONDS), limits={"time_seconds": 3600})["job_id"]
    until_begun(up, job_id)
    everybody = family(daemon)
    assert len(everybody) > 2
    os.kill(worker, signal.SIGKILL)
    until("no process is left", lambda: not any(map(alive, everybody)))
    until("it runs again", lambda: (job := up.job(job_id))["deaths"] == 1 and job["state"] == "RUNNING")
    assert up.client.post(f"/v1/jobs/{job_id}/cancel", json={}).status_code == 200
    assert ended(up, job_id)["reason"].startswith("CANCELLED")


def test_a_killed_daemon_costs_an_attempt(up: Up) -> None:
    daemon = pid_of(up, "sandbox daemon started")
    job_id = execute(up, SLOW.format(seconds=3))["job_id"]
    until_begun(up, job_id)
    everybody = family(daemon)
    os.kill(daemon, signal.SIGKILL)
    until("no process is left", lambda: not any(map(alive, everybody)))
    body = ended(up, job_id)
    assert body["result"]["stdout"] == "begun\ndone\n"
    job = up.job(job_id)
    assert (job["attempt"], job["deaths"], job["errors"][0]["type"]) == (2, 0, "SUPERVISOR_LOST")
    assert execute(up, "print(1)", 60)["result"]["stdout"] == "1\n"


def test_a_cancelled_job_is_killed(lasting: Up) -> None:
    up = lasting
    daemon = pid_of(up, "sandbox daemon started")
    job_id = execute(up, SLOW.format(seconds=2 * PATIENCE_SECONDS), limits={"time_seconds": 3600})["job_id"]
    until_begun(up, job_id)
    before = family(daemon)
    assert up.client.post(f"/v1/jobs/{job_id}/cancel", json={"reason": "enough"}).status_code == 200
    until("it is cancelled", lambda: up.job(job_id)["state"] == "CANCELLED")
    assert up.client.get(f"/jobs/{job_id}").json()["reason"] == "CANCELLED: enough"
    until("it is gone", lambda: len(before - family(daemon)) >= 1)


def run(*words: str, stdin: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **variables}
    return fork_server.run("jobyard", words, environment=environment, folder=ROOT, text=stdin)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_ends_the_program_first(lasting: Up, tmp_path: Path, number: signal.Signals) -> None:
    up = lasting
    before = executed(up)
    (tmp_path / "program.py").write_text(SLOW.format(seconds=25))
    token = up.client.headers["authorization"].removeprefix("Bearer ")
    words = ["--server", up.url, "run", "--time", "30", str(tmp_path / "program.py")]
    environment = {**os.environ, "JOBYARD_TOKEN": token}
    with fork_server.start(
        "jobyard", words, environment=environment, folder=ROOT, stdout=fork_server.PIPE, stderr=fork_server.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(number)
        assert process.wait(60) == 128 + number
    [job] = executed(up) - before
    until("it is cancelled", lambda: up.job(job)["state"] == "CANCELLED")


def executed(up: Up) -> set[str]:
    return {job["id"] for job in up.client.get("/v1/jobs", params={"kind": "execute"}).json()["items"]}


def test_from_the_terminal_here_and_through_the_server(lasting: Up, tmp_path: Path, variables: dict[str, str]) -> None:
    up = lasting
    program = tmp_path / "program.py"
    program.write_text("import sys\nprint(sys.argv[1:], input())\nprint('oops', file=sys.stderr)\nsys.exit(3)")
    token = up.client.headers["authorization"].removeprefix("Bearer ")
    for words, given in (([], variables), (["--server", up.url], {"JOBYARD_TOKEN": token})):
        response = run(*words, "run", "--time", "30", str(program), "a", "-b", stdin="typed", **given)
        assert (response.returncode, response.stdout) == (3, "['a', '-b'] typed\n"), response.stderr
        first, last = response.stderr.splitlines()[0], response.stderr.splitlines()[-1]
        assert first == "oops"
        assert last.startswith("jobyard: RUNTIME_ERROR, exit code 3, ")
        slow = run(*words, "run", "--time", "0.3", str(tmp_path / "loop.py"), **given)
        assert slow.returncode == 2  # there is no such file
        (tmp_path / "loop.py").write_text("while True: pass")
        slow = run(*words, "run", "--time", "0.3", str(tmp_path / "loop.py"), **given)
        assert (slow.returncode, "TIME_LIMIT" in slow.stderr) == (137, True)
        (tmp_path / "loop.py").unlink()
