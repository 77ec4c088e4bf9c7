"""`jobyard up`: dead processes are replaced, stopping is graceful, and no process is left behind."""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx2 as httpx
import pytest
from tests.servers.ports import free_ports
from tests.story.engines import on_every_store
from tests.story.up import alive, starting, until

pytestmark = [pytest.mark.story, pytest.mark.timeout(300)]


@on_every_store
def test_a_killed_worker_is_replaced_and_its_job_goes_on(tmp_path: Path, engine: str, url: str) -> None:
    with starting(tmp_path, "up", "--lease-seconds", "1", JOBYARD_STORE=url) as up:
        up.greet()
        job = up.enqueue("a")
        [first] = until("it runs", lambda: up.runs("a"))
        os.kill(first, signal.SIGKILL)
        until("another process runs it", lambda: len(up.runs("a")) == 2)
        up.flags.put("open-a")
        until("it is completed", lambda: up.job(job)["state"] == "COMPLETED")
        assert up.job(job)["result"] != first
        assert up.job(job)["deaths"] == 1
        assert f"(pid {first}) was killed by SIGKILL; restarting in" in up.said()
        up.process.send_signal(signal.SIGTERM)
        assert up.end() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_runs_may_finish(tmp_path: Path, number: signal.Signals) -> None:
    with starting(tmp_path, "up") as up:
        greeting = up.greet()
        job = up.enqueue("a")
        [worker] = until("it runs", lambda: up.runs("a"))
        if number == signal.SIGINT:
            up.interrupt()
        else:
            up.process.send_signal(number)
        until("the worker stops", lambda: "up to 30 s to finish 1 running job" in up.said())
        up.flags.put("open-a")
        assert up.end() == 0
        assert not alive(worker)
        assert "Traceback" not in up.said()
    with starting(tmp_path, "server", "--insecure") as again:
        assert again.greet()["token"] is None
        assert again.job(job)["state"] == "COMPLETED"
        assert greeting["token"] is not None


@pytest.mark.parametrize("signals", [1, 2])
def test_the_rest_is_handed_back(tmp_path: Path, signals: int) -> None:
    """After the time for finishing, or at once after a second signal."""
    with starting(tmp_path, "up", "--shutdown-timeout", "0.3" if signals == 1 else "600") as up:
        up.greet()
        job = up.enqueue("a")
        until("it runs", lambda: up.runs("a"))
        up.process.send_signal(signal.SIGTERM)
        until("the worker stops", lambda: "to finish" in up.said())
        if signals == 2:
            up.process.send_signal(signal.SIGTERM)
        assert up.end() == 0
        assert "1 job returned to the queue" in up.said()
        assert "Traceback" not in up.said()
    with starting(tmp_path, "server", "--insecure") as again:
        again.greet()
        assert (again.job(job)["state"], again.job(job)["attempt"]) == ("PENDING", 0)


@pytest.mark.parametrize("command", ["up", "server"])
def test_two_signals_at_once_leave_no_error(tmp_path: Path, command: str) -> None:
    with starting(tmp_path, command) as up:
        up.greet()
        up.process.send_signal(signal.SIGTERM)
        until("it stops", lambda: "no new connections" in up.said())
        up.process.send_signal(signal.SIGTERM)
        assert up.end() == 0
        assert " ERROR " not in up.said()


def test_the_death_of_the_parent_ends_the_workers(tmp_path: Path) -> None:
    with starting(tmp_path, "up", "--processes", "2", "--shutdown-timeout", "0.3") as up:
        up.greet()
        up.enqueue("a")
        up.enqueue("b")
        workers = until("both run", lambda: len(up.runs("a") + up.runs("b")) == 2 and up.runs("a") + up.runs("b"))
        up.process.send_signal(signal.SIGKILL)
        assert up.end() == -signal.SIGKILL
        until("the workers end", lambda: not any(map(alive, workers)))
        assert "returned to the queue" in up.said()


def test_a_request_that_is_under_way_is_finished(tmp_path: Path) -> None:
    with starting(tmp_path, "server") as up:
        greeting = up.greet()
        body = b'{"kind": "gate", "payload": {"name": "a"}}'
        host, _, port = up.url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port))) as caller:
            caller.sendall(
                b"POST /v1/jobs HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n"
                b"Authorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s"
                % (greeting["token"].encode(), len(body), body[:9])
            )
            # A second caller is served after the first was heard, so the first is inside.
            assert up.client.get("/v1/queues").status_code == 200
            up.process.send_signal(signal.SIGTERM)
            until("it stops", lambda: "no new connections" in up.said())
            until("no new connection is accepted", lambda: refuses(host, int(port)))
            caller.sendall(body[9:])
            response = b""
            while chunk := caller.recv(65536):
                response += chunk
        assert response.startswith(b"HTTP/1.1 202 ")
        assert up.end() == 0


def test_a_stopping_server_can_be_seen_to_stop(tmp_path: Path) -> None:
    with starting(tmp_path, "server", JOBYARD_SERVER__LAME_DUCK_SECONDS="600") as up:
        up.greet()
        assert up.client.get("/readyz").status_code == 200
        up.process.send_signal(signal.SIGTERM)
        until("it is not ready", lambda: up.client.get("/readyz").status_code == 503)
        assert "stopping" in up.client.get("/readyz?verbose").json()["reason"]
        assert up.client.get("/v1/queues").status_code == 200
        up.process.send_signal(signal.SIGTERM)  # now
        assert up.end() == 0


def test_open_streams_end_with_the_server(tmp_path: Path) -> None:
    with starting(tmp_path, "server", JOBYARD_SERVER__SHUTDOWN_TIMEOUT="600") as up:
        up.greet()
        with up.client.stream("GET", "/v1/events") as stream:
            lines = stream.iter_lines()
            assert next(lines)
            up.process.send_signal(signal.SIGTERM)
            list(lines)  # to its end, which is a proper one: a broken stream would raise
        assert up.end() == 0


def test_changes_of_a_waiting_job_are_on_the_stream(tmp_path: Path) -> None:
    with starting(tmp_path, "server") as up:
        up.greet()
        with up.client.stream("GET", "/v1/events?type=enqueued&type=cancelled") as stream:
            lines = stream.iter_lines()
            hear(lines, "io.jobyard.snapshot.v1")
            heard = threading.Event()

            def hand_in() -> None:
                while not heard.wait(0.1):  # a publisher notices a subscriber within a second
                    up.enqueue("a")

            handing_in = threading.Thread(target=hand_in)
            handing_in.start()
            enqueued = hear(lines, "io.jobyard.job.enqueued.v1")
            heard.set()
            handing_in.join()
            job = up.client.get("/v1/jobs").json()["items"][0]["id"]
            assert up.client.post(f"/v1/jobs/{job}/cancel", json={}).status_code == 200
            assert job in hear(lines, "io.jobyard.job.cancelled.v1")
            assert '"kind":"gate"' in enqueued


def hear(lines: Iterator[str], kind: str) -> str:
    """The next event of this kind; the client's own patience ends the wait for one that never comes."""
    return next(line for line in lines if f'"type":"{kind}"' in line)


def refuses(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=60).close()
    except OSError:
        return True
    return False


@pytest.mark.parametrize("command", ["server", "up"])
def test_a_port_in_use_is_an_error_before_anything_is_done(tmp_path: Path, command: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with starting(tmp_path, command, PORT=str(port)) as up:
            assert up.end() == 1
            [line] = up.said().splitlines()
            assert f"port {port}: it is in use" in line
    assert not (tmp_path / "jobs.db").exists()


def test_beyond_this_machine_only_with_a_token(tmp_path: Path) -> None:
    with starting(tmp_path, "server", "--host", "0.0.0.0") as up:
        assert up.end() == 1
        assert "jobyard tokens create" in up.said()
    with starting(tmp_path, "server", "--host", "0.0.0.0", "--insecure") as up:
        assert up.end() == 1
        assert "loopback only" in up.said()
    with starting(tmp_path, "server") as up:
        greeting = up.greet()
    with starting(tmp_path, "server", "--host", "0.0.0.0") as up:
        assert up.greet()["token"] is None
        assert up.client.get("/v1/queues").status_code == 401
        known = {"Authorization": f"Bearer {greeting['token']}"}
        assert up.client.get("/v1/queues", headers=known).status_code == 200


def test_open_on_loopback_with_a_warning_and_without_an_app_for_any_kind(tmp_path: Path) -> None:
    with starting(tmp_path, "server", "--insecure", app=False) as up:
        up.greet()
        assert "--insecure" in up.said()
        response = up.client.post("/v1/jobs", json={"kind": "whatever", "payload": {}})
        assert response.status_code == 202
        # A page of another site that has its name point here.
        assert up.client.get("/v1/queues", headers={"Host": "evil.example"}).status_code == 403
        up.process.send_signal(signal.SIGTERM)
        assert up.end() == 0


def test_with_an_app_a_job_that_it_cannot_run_is_refused(tmp_path: Path) -> None:
    with starting(tmp_path, "server") as up:
        up.greet()
        response = up.client.post("/v1/jobs", json={"kind": "gaet"})
        assert (response.status_code, response.json()["code"]) == (422, "unknown_kind")
        response = up.client.post("/v1/jobs", json={"kind": "gate", "payload": {"nam": "a"}})
        assert (response.status_code, response.json()["code"]) == (422, "bad_input")
        assert httpx.post(f"{up.url}/v1/jobs", json={"kind": "gate"}, timeout=60).status_code == 401


def test_one_trace_goes_from_the_caller_to_the_handler(tmp_path: Path) -> None:
    """Through the server and the worker, each of which writes its spans to the output that they share."""
    trace = "0af7651916cd43dd8448eb211c80319c"
    with starting(tmp_path, "up", JOBYARD_TRACING__ENABLED="true", OTEL_TRACES_EXPORTER="console") as up:
        up.greet()
        up.flags.put("open-a")
        caller = {"traceparent": f"00-{trace}-b7ad6b7169203331-01"}
        response = up.client.post("/v1/jobs", json={"kind": "gate", "payload": {"name": "a"}}, headers=caller)
        until("it is done", lambda: up.job(response.json()["id"])["state"] == "COMPLETED")
        up.process.send_signal(signal.SIGTERM)
        assert up.process.stdout is not None
        printed = up.process.stdout.read()
        assert up.end() == 0
    names = re.findall(rf'"name": "([^"]+)",\s+"context": {{\s+"trace_id": "0x{trace}"', printed)
    assert {"POST /v1/jobs", "send default", "process default"} <= set(names)
    assert {"jobyard-server", "jobyard-worker"} <= set(re.findall(r'"service.name": "([^"]+)"', printed))


def test_up_needs_a_store_that_processes_share(tmp_path: Path) -> None:
    with starting(tmp_path, "up", JOBYARD_STORE="memory://") as up:
        assert up.end() == 1
        assert "Cannot use memory://" in up.said()


@pytest.mark.parametrize("words", [("--concurrency", "0"), ("--lease-seconds", "0"), ("--shutdown-timeout", "-1")])
def test_what_no_worker_can_use_is_refused_at_once(tmp_path: Path, words: tuple[str, ...]) -> None:
    with starting(tmp_path, "up", *words) as up:
        assert up.end() == 1
        assert up.said().startswith("Error: ")
        assert len(up.said().splitlines()) == 1


def test_each_worker_serves_its_health_on_a_port_of_its_own(tmp_path: Path) -> None:
    first = free_ports(2)
    with starting(tmp_path, "up", "--processes", "2", JOBYARD_WORKER__HEALTH_PORT=str(first)) as up:
        up.greet()
        for port in (first, first + 1):
            until("the worker is ready", lambda port=port: answers(f"http://127.0.0.1:{port}/readyz"))
        up.flags.put("open-a")
        job = up.enqueue("a")
        until("it is done", lambda: up.job(job)["state"] == "COMPLETED")
        finished = 'jobyard_jobs_finished_total{kind="gate",queue="default",state="COMPLETED"} 1.0'

        def counted() -> list[bool]:
            return [
                finished in httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=60).text
                for port in (first, first + 1)
            ]

        until("it is counted", lambda: any(counted()))
        assert sorted(counted()) == [False, True]
        waited = 'jobyard_job_queue_wait_seconds_count{kind="gate",queue="default"} 1.0'
        ran = first + counted().index(True)
        until("its wait is measured", lambda: waited in httpx.get(f"http://127.0.0.1:{ran}/metrics", timeout=60).text)
        up.process.send_signal(signal.SIGTERM)
        assert up.end() == 0


def answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=60).status_code == 200
    except httpx.TransportError:
        return False


def test_up_needs_an_app(tmp_path: Path) -> None:
    with starting(tmp_path, "up", app=False) as up:
        assert up.end() == 1
        assert "needs your application" in up.said()
