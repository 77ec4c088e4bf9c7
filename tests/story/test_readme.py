"""What the README shows of the server works as it is written, with what `make run` runs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.house.repository import blocks
from tests.sandbox.machine_tiers import best_tier
from tests.servers.ports import free_port
from tests.story.up import until
from tests.support import ROOT

from jobyard.sandbox.protocol import Tier

pytestmark = [pytest.mark.story, pytest.mark.timeout(300)]

SHOWN_PORT = 8080


def run_command() -> str:
    """The recipe, as make would hand it to the shell."""
    # As from a terminal, also when a make runs the tests.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    words = ["make", "--no-print-directory", "-n", "run"]
    response = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return response.stdout.splitlines()[-1]


def shown_commands(port: int, mark: str = "tried") -> list[str]:
    [block] = [block for block in blocks(ROOT / "README.md") if block.mark == mark]
    joined = block.text.replace("\\\n", " ").replace(f":{SHOWN_PORT}/", f":{port}/")
    return [line for line in joined.splitlines() if not line.startswith("#")]


@contextmanager
def made_to_run(folder: Path, port: int) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """The process, and the lines that it printed until there was something to try."""
    environment = {**os.environ, "PORT": str(port), "JOBYARD_STORE": f"sqlite:///{folder}/jobs.db"}
    process = subprocess.Popen(
        ["sh", "-c", run_command()], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    )
    with process:
        try:
            assert process.stdout is not None
            printed: list[str] = []
            for line in process.stdout:
                printed.append(line.rstrip("\n"))
                if "/v1/events" in line:
                    break
            yield process, printed
        finally:
            if process.poll() is None:
                process.kill()


def shell(command: str, token: str) -> str:
    environment = {**os.environ, "JOBYARD_TOKEN": token}
    response = subprocess.run(
        ["sh", "-c", command], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    return response.stdout


@contextmanager
def watched(command: str, token: str, output: Path) -> Iterator[None]:
    """A command that does not end by itself."""
    with (
        output.open("w") as file,
        subprocess.Popen(
            ["sh", "-c", f"exec {command}"], env={**os.environ, "JOBYARD_TOKEN": token}, stdout=file
        ) as process,
    ):
        try:
            yield
        finally:
            process.kill()


def test_the_readmes_commands_work_as_written_and_so_do_the_printed_ones(tmp_path: Path) -> None:
    port = free_port()
    with made_to_run(tmp_path, port) as (process, printed):
        assert f"http://127.0.0.1:{port}" in printed[0]
        [token] = re.findall(r"export JOBYARD_TOKEN=(\S+)", "\n".join(printed))
        program, *to_try = [line.strip() for line in printed if line.strip().startswith("curl ")]
        assert "/execute" in program
        for number, (hand_in, look, watch) in enumerate((shown_commands(port), to_try)):
            seen = tmp_path / f"events-{number}"
            with watched(watch, token, seen):
                until("the stream is open", lambda seen=seen: seen.read_text())
                job = json.loads(shell(hand_in, token))
                assert job["created"] is True
                assert json.loads(shell(look, token))["items"]
                # By its id: the example keeps itself busy, so newer jobs may have pushed it off the page of the newest.
                look_for = look.replace("page_size=", f"id={job['id']}&page_size=")
                assert [each["id"] for each in json.loads(shell(look_for, token))["items"]] == [job["id"]]
                until("it was seen", lambda seen=seen, job=job: job["id"] in seen.read_text())
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def has_ended(response: dict[str, Any]) -> dict[str, Any] | None:
    return response if response["status"] not in ("PENDING", "RUNNING") else None


def can_run_programs() -> bool:
    words = [str(ROOT / ".venv/bin/jobyard"), "sandbox", "status", "--json"]
    return subprocess.run(words, cwd=ROOT, capture_output=True, check=False).returncode == 0


def test_programs_are_run_as_the_readme_shows(tmp_path: Path) -> None:
    port = free_port()
    with made_to_run(tmp_path, port) as (process, printed):
        [token] = re.findall(r"export JOBYARD_TOKEN=(\S+)", "\n".join(printed))
        wait, hand_in, follow, look, languages = shown_commands(port, "programs")
        if not can_run_programs():
            assert best_tier() not in (Tier.A, Tier.B)
            assert json.loads(shell(wait, token))["status"] == "PENDING"
            return
        until("the sandbox is up", lambda: json.loads(shell(languages, token))["items"])

        def finished(response: dict[str, Any]) -> dict[str, Any]:
            # The command waits for 5 s, and a busy machine may take longer.
            command = f"JOB={response['job_id']}; {look}"
            found: dict[str, Any] = until("it has ended", lambda: has_ended(json.loads(shell(command, token))))
            return found

        body = finished(json.loads(shell(wait, token)))
        assert (body["status"], body["result"]["stdout"], body["result"]["verdict"]) == ("COMPLETED", "42\n", "OK")
        heard, *rest = shell(f"{hand_in}; {follow}; echo; {look}", token).rsplit("\n", 1)
        assert "event: stdout" in heard
        assert json.loads(rest[0])["result"]["stdout"] == "0\n1\n2\n"
        [printed_one] = [line.strip() for line in printed if "/execute" in line]
        assert finished(json.loads(shell(printed_one, token)))["result"]["stdout"] == "42\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
