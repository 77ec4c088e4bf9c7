"""Jobs of kind execute through a worker and a store: results, verdicts, faults, batches, cancellation."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.conformance.support import new
from tests.sandbox.fake_daemon import FakeDaemon, daemon
from tests.support import eventually

from jobyard import Context, Jobyard, State
from jobyard.app.declarations import declarations_of
from jobyard.domain.job import Job
from jobyard.errors import BadInput
from jobyard.executors.by_kind import ExecutorByKind
from jobyard.executors.python.executor import PythonExecutor
from jobyard.executors.sandbox.bounds import MAXIMUMS, MINIMUMS, Bounds, check
from jobyard.executors.sandbox.client import SandboxClient
from jobyard.executors.sandbox.executor import SandboxExecutor
from jobyard.executors.sandbox.live_output import FOLLOWERS, OUTPUT, LiveOutput, OutputBuffer, unpack
from jobyard.executors.sandbox.program import KIND, QUEUE, Program
from jobyard.executors.sandbox.result import _output, as_json
from jobyard.observability.logs import LogObserver
from jobyard.operations.commands import Commands
from jobyard.operations.queries import Queries
from jobyard.ports.admin_store import Action
from jobyard.ports.clock import SystemClock
from jobyard.sandbox.daemon.validation import find_problem
from jobyard.sandbox.protocol import File, Limits
from jobyard.stores.memory import MemoryStore
from jobyard.worker.worker import Worker


class Scene:
    def __init__(self, yard: Jobyard, worker: Worker, fake: FakeDaemon, executor: SandboxExecutor) -> None:
        self.yard, self.worker, self.fake, self.executor = yard, worker, fake, executor

    async def submit(self, program: Program | bytes | None, **options: Any) -> str:
        private = msgspec.json.encode(program) if isinstance(program, Program) else program
        job = new(kind=KIND, queue=QUEUE, private_payload=private, **options)
        await self.yard.store.insert([job])
        return job.id

    async def end(self, program: Program | bytes | None, **options: Any) -> Job:
        return await Queries(self.yard.store).end(await self.submit(program, **options), 10)


def program(*lines: str, **given: Any) -> Program:
    return Program(language="python", source="\n".join(lines), **given)


def result(job: Job) -> dict[str, Any]:
    assert job.state is State.COMPLETED, job.reason
    assert job.result is not None
    value: dict[str, Any] = msgspec.json.decode(job.result)
    return value


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with daemon(tmp_path) as fake, opened(fake) as scene:
        yield scene


@asynccontextmanager
async def opened(fake: FakeDaemon, patience: float = 2.0) -> AsyncIterator[Scene]:
    store = MemoryStore(SystemClock())
    yard = Jobyard(store=store)
    client = SandboxClient(fake.path, connect_timeout_seconds=patience)
    async with yard:
        await client.start()
        live = LiveOutput(store)
        executor = SandboxExecutor(client, Bounds(), live)
        worker = Worker(
            store,
            ExecutorByKind({KIND: executor}, PythonExecutor(declarations_of(yard).handlers)),
            LogObserver(),
            concurrency=4,
        )
        async with worker:
            yield Scene(yard, worker, fake, executor)
        await live.stop()
        await client.stop()


async def test_result_fields(scene: Scene) -> None:
    job = await scene.end(program("out hello", "err oops", "exit 3"))
    found = result(job)
    assert {name: found[name] for name in ("stdout", "stderr", "exit_code", "verdict", "signal", "tier")} == {
        "stdout": "hello\n",
        "stderr": "oops\n",
        "exit_code": 3,
        "verdict": "RUNTIME_ERROR",
        "signal": None,
        "tier": "A",
    }
    assert found["truncated"] == {"stdout": False, "stderr": False}
    assert 0 <= found["execution_time_ms"] < 1000
    assert (found["cpu_time_ms"], found["memory_peak_bytes"]) == (1.0, 1 << 20)


async def test_exceeded_limits_are_results_with_partial_output(scene: Scene) -> None:
    slow = result(await scene.end(program("out begun", "sleep 30", limits=Limits(time_seconds=0.05))))
    assert (slow["verdict"], slow["stdout"], slow["exit_code"]) == ("TIME_LIMIT", "begun\n", 137)
    loud = result(await scene.end(program("out 0123456789", limits=Limits(output_bytes=4))))
    assert (loud["verdict"], loud["stdout"]) == ("OUTPUT_LIMIT", "0123")
    assert loud["truncated"] == {"stdout": True, "stderr": False}
    dead = result(await scene.end(program("die 11")))
    assert (dead["verdict"], dead["signal"], dead["exit_code"]) == ("SIGNALED", 11, 139)


async def test_binary_output_is_also_base64(scene: Scene) -> None:
    found = result(await scene.end(program("bytes 61ff00")))
    assert (found["stdout"], base64.b64decode(found["stdout_base64"])) == ("a\ufffd\x00", b"a\xff\x00")
    assert "stderr_base64" not in found


@pytest.mark.parametrize("byte", [b"\0", b"\xff", b"\xff\0"])
def test_binary_output_has_a_short_text_form(byte: bytes) -> None:
    data = byte * (1 << 19)
    found = _output("stdout", data)
    assert base64.b64decode(found["stdout_base64"]) == data
    assert found["stdout"].endswith("…")
    assert len(as_json(found)) < 1.5 * len(data)
    assert _output("stdout", b"\x1b[31mred\n" * 1000) == {"stdout": "\x1b[31mred\n" * 1000}


async def test_truncated_output_ends_at_a_character(scene: Scene) -> None:
    found = result(await scene.end(program("out ééé", limits=Limits(output_bytes=3))))
    assert (found["stdout"], found["truncated"]["stdout"]) == ("é", True)
    assert "stdout_base64" not in found


async def test_input_arguments_and_files_are_passed_and_files_collected(scene: Scene) -> None:
    files = (File(name="data/a.txt", data=b"\x00\xff"),)
    given = program(
        "cat", "args", "files", "keep", inputs=(b"\xff",), args=("a", "b c"), files=files, collect=("o.txt",)
    )
    found = result(await scene.end(given))
    assert base64.b64decode(found["stdout_base64"]) == b"\xffa b cdata/a.txt=\x00\xff"
    assert found["files"] == [{"name": "o.txt", "size": 4, "content": "kept"}]


async def test_files_beyond_the_bound_are_noted(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scene.executor, "_bounds", Bounds(max_file_bytes=9))
    found = result(await scene.end(program("keep", collect=("a", "b", "c"))))
    assert [file["name"] for file in found["files"]] == ["a", "b"]
    [note] = found["notes"]
    assert note.startswith("c: ")


async def test_python_kinds_run_on_the_same_worker(scene: Scene) -> None:
    @scene.yard.job()
    async def double(ctx: Context, n: int) -> int:
        return 2 * n

    handle = await double.enqueue(21)
    assert result(await scene.end(program("out x")))["stdout"] == "x\n"
    assert await handle.result(60) == 42


async def test_platform_fault_is_retried_and_becomes_the_reason(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobyard.executors.sandbox.executor.RETRY_SOON_SECONDS", 0.01)
    job = await scene.end(program("refuse SPAWN_FAILED"))
    assert (job.state, job.attempt, job.reason) == (State.FAILED, 3, "SPAWN_FAILED: as requested")
    assert [error.type for error in job.errors] == ["SPAWN_FAILED"] * 3
    assert len(scene.fake.runs) == 3


async def test_lost_daemon_costs_an_attempt_not_the_job(scene: Scene) -> None:
    job_id = await scene.submit(program("out once", "sleep 0.3"))
    await eventually(lambda: scene.fake.running)
    await scene.fake.stop()
    await scene.fake.start()
    job = await Queries(scene.yard.store).end(job_id, 60)
    assert result(job)["stdout"] == "once\n"
    assert (job.attempt, job.errors[0].type) == (2, "SUPERVISOR_LOST")


async def test_cancelled_job_kills_its_run(scene: Scene) -> None:
    job_id = await scene.submit(program("sleep 30", limits=Limits(time_seconds=30)))
    await eventually(lambda: scene.fake.running)
    await Commands(scene.yard.store).change_one(Action.CANCEL, job_id, reason="enough")
    job = await Queries(scene.yard.store).end(job_id, 60)
    assert (job.state, scene.fake.running, scene.fake.cancelled) == (State.CANCELLED, 0, 1)


async def test_stopping_worker_releases_the_job_and_kills_its_run(scene: Scene) -> None:
    job_id = await scene.submit(program("sleep 30", limits=Limits(time_seconds=30)))
    await eventually(lambda: scene.fake.running)
    await scene.worker.stop(0)
    job = await scene.yard.get(job_id)
    assert (job.state, job.attempt, scene.fake.running) == (State.PENDING, 0, 0)


async def test_batch_runs_in_order_in_one_slot(scene: Scene) -> None:
    found = result(await scene.end(program("cat", inputs=(b"a", b"b", b"c"), is_batch=True)))
    assert [(each["index"], each["stdout"]) for each in found["results"]] == [(0, "a"), (1, "b"), (2, "c")]
    assert scene.fake.max_running == 1


async def test_compile_error_ends_a_batch(scene: Scene) -> None:
    found = result(await scene.end(program("compile 1", inputs=(b"a", b"b"), is_batch=True)))
    assert [each["verdict"] for each in found["results"]] == ["COMPILE_ERROR"] * 2
    assert found["results"][1]["compile"]["exit_code"] == 1
    assert len(scene.fake.runs) == 1


async def test_batch_output_limit(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobyard.executors.sandbox.executor.MAX_BATCH_OUTPUT_BYTES", 5)
    found = result(await scene.end(program("cat", inputs=(b"abc", b"def"), is_batch=True)))
    assert [each["stdout"] for each in found["results"]] == ["abc", ""]
    assert found["results"][1]["truncated"] == {"stdout": True, "stderr": True}
    assert "left out" in found["results"][1]["notes"][0]


@pytest.mark.parametrize(
    "private", [None, b"{}", b"[", msgspec.json.encode(program("x", limits=Limits(time_seconds=1e9)))]
)
async def test_invalid_payload_fails_without_retry(scene: Scene, private: bytes | None) -> None:
    job = await scene.end(private)
    assert (job.state, job.attempt, scene.fake.runs) == (State.FAILED, 1, [])


async def test_live_output_is_published_only_with_followers(scene: Scene) -> None:
    store = scene.yard.store
    lines = ("out early", "sleep 0.4", "out late", "sleep 0.3")
    alone, followed = await scene.submit(program(*lines)), await scene.submit(program(*lines))
    await store.put(FOLLOWERS, followed, b"", expire_seconds=10)
    records = await eventually(lambda: store.fetch_all(OUTPUT))
    assert [record.key.partition(".")[0] for record in records] == [followed]
    record = unpack(records[0].data)
    assert [(chunk.fd, chunk.data) for chunk in record.chunks] == [(1, b"early\n")]
    await Queries(scene.yard.store).end(alone, 60)
    job = await Queries(scene.yard.store).end(followed, 60)
    assert result(job)["stdout"] == "early\nlate\n"


async def test_followers_are_listed_when_many_runs_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobyard.executors.sandbox.live_output.PAGE_SIZE", 2)
    monkeypatch.setattr("jobyard.executors.sandbox.live_output.MAX_SINGLE_LOOKUPS", 3)
    store = MemoryStore(SystemClock())
    await store.open()
    live = LiveOutput(store)
    for number in range(9):
        live.open(f"job{number}", 1, 0, 60).feed(1, b"x")
        await store.put(FOLLOWERS, f"another{number}", b"")
    for number in (2, 8):
        await store.put(FOLLOWERS, f"job{number}", b"")
    await live.run_once()
    assert [record.key.partition(".")[0] for record in await store.fetch_all(OUTPUT)] == ["job2", "job8"]
    await live.stop()
    await store.close()


def test_output_buffer_returns_each_byte_once_in_bounded_records() -> None:
    buffer = OutputBuffer("job", 1, 0, 60)
    assert (buffer.next(), buffer.has_unpublished) == ((), False)
    buffer.feed(1, b"a")
    buffer.feed(1, b"b")
    buffer.feed(2, b"c")
    assert [(chunk.fd, chunk.data) for chunk in buffer.next()] == [(1, b"ab"), (2, b"c")]
    buffer.feed(2, b"d")
    buffer.feed(1, b"e" * 70_000)
    assert [(chunk.fd, chunk.data[:1]) for chunk in buffer.next()] == [(2, b"d"), (1, b"e")]
    assert sum(len(chunk.data) for chunk in buffer.next()) == 70_001 - 65_536
    assert buffer.next() == ()


async def test_program_waits_while_there_is_no_sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long: no attempt is counted."""
    monkeypatch.setattr("jobyard.executors.sandbox.executor.UNAVAILABLE_SECONDS", 0.02)
    fake = FakeDaemon(str(tmp_path / "sandbox.sock"))
    async with opened(fake, patience=0.05) as scene:
        job_id = await scene.submit(program("out hello"), max_attempts=1)
        await eventually(lambda: snoozed(scene, job_id))
        await fake.start()
        assert result(await Queries(scene.yard.store).end(job_id, 60))["stdout"] == "hello\n"
        await fake.stop()


async def snoozed(scene: Scene, job_id: str) -> bool:
    job = await Queries(scene.yard.store).job(job_id)
    assert (job.state.is_final, job.errors) == (False, ())
    return job.state is State.PENDING and job.run_at > job.created_at


async def test_unsupported_request_fails(scene: Scene) -> None:
    job = await scene.end(program("refuse UNSUPPORTED"), max_attempts=1)
    assert (job.state, job.attempt) == (State.FAILED, 1)


BAD_NAMES = [
    "",
    "/etc/passwd",
    "../x",
    "a/../b",
    "a//b",
    ".",
    "a/",
    "a\0b",
    "a\nb",
    "x" * 256,
    "é" * 128,
    "d/" * 600 + "x",
]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_invalid_file_names(name: str) -> None:
    for given in ({"files": (File(name=name, data=b""),)}, {"collect": (name,)}):
        with pytest.raises(BadInput, match=r"^(files|collect)\.0"):
            check(program("x", **given), Bounds())


@pytest.mark.parametrize("names", [("a", "a"), ("a", "a/b"), ("a/b", "a"), tuple(map(str, range(40)))])
def test_colliding_file_names(names: tuple[str, ...]) -> None:
    with pytest.raises(BadInput, match="files"):
        check(program("x", files=tuple(File(name=name, data=b"") for name in names)), Bounds())


@pytest.mark.parametrize(
    "given",
    [
        {"limits": Limits(time_seconds=float("nan"))},
        {"limits": Limits(time_seconds=float("inf"))},
        {"limits": Limits(time_seconds=0)},
        {"limits": Limits(cpu_seconds=-1)},
        {"limits": Limits(memory_mb=0)},
        {"limits": Limits(memory_mb=3)},
        {"files": (File(name="a", data=b"x" * ((1 << 20) - 1)),), "limits": Limits(disk_mb=1)},
        {"files": tuple(File(name=f"d{n}/a", data=b"") for n in range(8)), "limits": Limits(disk_files=16)},
        {"limits": Limits(memory_mb=10**18)},
        {"limits": Limits(processes=0)},
        {"args": ("a\0",)},
        {"args": ("a",) * 300},
        {"args": ("a" * 70_000,)},
        {"inputs": ()},
        {"inputs": (b"x" * ((1 << 20) + 1),)},
        {"files": (File(name="a", data=b"x" * ((1 << 20) + 1)),)},
    ],
    ids=str,
)
def test_out_of_bounds(given: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        check(program("x", **given), Bounds())


@pytest.mark.parametrize("name", MINIMUMS)
def test_bounds_are_within_what_the_daemon_accepts(name: str) -> None:
    """Otherwise a valid job would fail as a platform fault, after three attempts."""
    assert set(MAXIMUMS) == set(Bounds.__struct_fields__)
    widest = Bounds(**MAXIMUMS)
    for value in (MINIMUMS[name], widest.most(name)):
        given: dict[str, Any] = {name: value if name.endswith("_seconds") else int(value)}
        limits = Limits(**given)
        check(program("x", limits=limits), widest)
        assert find_problem(program("x", limits=limits).run_request(b"")) == ""


def test_job_timeout_exceeds_the_program_limits() -> None:
    assert program("x", inputs=(b"",) * 3, limits=Limits(time_seconds=5)).timeout_seconds == 75


async def test_nothing_private_is_logged(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    await scene.end(program("out SECRETOUT", "refuse INTERNAL", inputs=(b"SECRETIN",)), max_attempts=1)
    await asyncio.sleep(0)
    assert "SECRET" not in caplog.text
