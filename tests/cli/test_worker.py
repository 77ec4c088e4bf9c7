"""The worker as a process: it runs, drains on a signal, hands back on the second."""

from __future__ import annotations

import json
import re
import signal
import socket
import time

import pytest
from tests.cli.support import PATIENCE_SECONDS, Shop, error_code, shop
from tests.fork_server import ForkedProcess

from jobyard import Jobyard
from jobyard.operations.worker_control import control_worker

__all__ = ["shop"]


def wait_for_line(process: ForkedProcess, text: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if text in line:
            return
    pytest.fail(f"ended without {text!r}")


def test_until_empty_runs_everything_and_ends(shop: Shop) -> None:
    jobs = [shop.enqueue("send", {"to": str(number)}) for number in range(5)]
    delayed = shop.enqueue("send", {"to": "later"}, delay=600)
    result = shop.run("worker", "--until-empty", "--concurrency", "3", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["completed"] == 5
    states = {job["id"]: job["state"] for job in shop.json("jobs", "list")["jobs"]}
    assert states == {**dict.fromkeys(jobs, "COMPLETED"), delayed: "PENDING"}


def test_a_worker_claims_only_its_queues(shop: Shop) -> None:
    mail = shop.enqueue("send", {"to": "a"})
    other = shop.enqueue("send", {"to": "b"}, queue="other")
    assert shop.run("worker", "--until-empty", "--queue", "other").exit_code == 0
    assert shop.json("jobs", "show", mail)["state"] == "PENDING"
    assert shop.json("jobs", "show", other)["state"] == "COMPLETED"


@pytest.mark.parametrize(
    ("words", "environment", "option"),
    [
        (("--concurrency", "0"), {}, "concurrency"),
        (("--lease-seconds", "0"), {}, "lease"),
        (("--shutdown-timeout", "-1"), {}, "--shutdown-timeout"),
        ((), {"QUEUE_CONCURRENCY": "100000"}, "concurrency"),
    ],
)
def test_settings_out_of_range_are_rejected(
    shop: Shop, words: tuple[str, ...], environment: dict[str, str], option: str
) -> None:
    result = shop.run("worker", *words, **environment)
    assert (result.exit_code, error_code(result)) in ((1, "bad_option"), (1, "configuration"))
    assert option in result.stderr


def test_a_worker_that_is_stopped_remotely_exits_with_0(shop: Shop) -> None:
    async def stop_it(yard: Jobyard) -> bool:
        for worker in await yard.store.workers():
            await control_worker(yard.store, worker.id, "stop")
            return True
        return False

    with shop.start("worker", "--json") as worker:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not shop.do(stop_it):
            assert time.monotonic() < deadline
            assert worker.poll() is None
        output, errors = worker.communicate(timeout=PATIENCE_SECONDS)
        assert worker.returncode == 0, errors
        assert json.loads(output)["completed"] == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_hands_back_and_ends_well_on_a_signal(shop: Shop, number: signal.Signals) -> None:
    shop.enqueue("hang")
    with shop.start("worker", "--shutdown-timeout", "0") as worker:
        wait_for_line(worker, "hanging")
        worker.send_signal(number)
        _, errors = worker.communicate(timeout=PATIENCE_SECONDS)
    assert worker.returncode == 0
    assert "1 job returned to the queue" in errors
    assert "INFO    shop: the handler speaks" in errors
    assert "Traceback" not in errors
    (job,) = shop.json("jobs", "list")["jobs"]
    assert (job["state"], job["attempt"]) == ("PENDING", 0)


def test_a_second_signal_does_not_wait(shop: Shop) -> None:
    shop.enqueue("hang")
    with shop.start("worker", "--shutdown-timeout", "600") as worker:
        wait_for_line(worker, "hanging")
        # Of two kinds: waiting signals of one kind would be delivered as one.
        worker.send_signal(signal.SIGTERM)
        worker.send_signal(signal.SIGINT)
        _, errors = worker.communicate(timeout=PATIENCE_SECONDS)
    assert worker.returncode == 0
    assert "1 job returned to the queue" in errors


def test_running_and_workers_show_what_a_live_worker_does(shop: Shop) -> None:
    shop.enqueue("hang", group="g")
    with shop.start("worker", "--concurrency", "7", "--queue", "slow", "--shutdown-timeout", "0") as worker:
        wait_for_line(worker, "hanging")
        (job,) = shop.json("running")["running"]
        assert (job["kind"], job["queue"], job["group"], job["attempt"]) == ("hang", "slow", "g", 1)
        assert job["elapsed_seconds"] >= 0
        assert job["progress"]["percent"] == 10
        (info,) = shop.json("workers")["workers"]
        assert info["id"] == job["worker"]
        assert (info["pid"], info["concurrency"], info["queues"]) == (worker.pid, 7, ["slow"])
        assert "10% hanging" in shop.run("running").stdout
        assert info["id"] in shop.run("workers").stdout
        assert shop.json("running", "--queue", "mail")["running"] == []
        shop.enqueue("hang", delay=600)
        shop.enqueue("send", {"to": "a"})
        found = shop.json("running")
        assert found["queued"] == {"mail": 1, "slow": 1}
        assert found["summary"] == {"running_count": 1, "queued_count": 2}
        jobs, queues = shop.run("running").stdout.split("\n\n")
        assert jobs.splitlines()[1].split("\t")[:3] == ["slow", job["id"], "hang"]
        assert info["id"] in jobs
        assert queues == "queue\trunning\twaiting\tparked or later\nmail\t0/10\t1\t0\nslow\t1\t0\t1\n"
        with shop.on_terminal("running") as terminal:
            assert terminal.end() == 0
        shown = re.sub(r"\x1b\[[0-9;]*m", "", terminal.seen)
        assert re.search(rf"slow +{job['id']} hang .+ █░░░░░ 10%", shown)
        assert "mail  ░░░░░░░░░░ 0/10" in shown
        cancelled = shop.run("jobs", "cancel", job["id"], "--reason", "enough")
        assert cancelled.exit_code == 0


def test_a_health_port_in_use_is_an_error(shop: Shop) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = shop.run("worker", "--health-port", str(taken.getsockname()[1]))
    assert result.exit_code == 1
    assert (error_code(result), "--health-port" in result.stderr) == ("configuration", True)
    assert "it is in use. Stop the other process" in result.stderr
    assert "attempting to bind" not in result.stderr
