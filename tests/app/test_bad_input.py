"""What cannot be taken is refused with its cause and its remedy, and nothing is half-written."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from jobyard import Context, Delays, Exponential, Fixed, Jobyard, State, Unique, UniqueScope
from jobyard.app.declarations import declarations_of
from jobyard.domain.job import QueueSettings
from jobyard.errors import (
    BadInput,
    BadOption,
    JobFailed,
    NewerSchema,
    NotADatabase,
    PayloadNotJson,
    PayloadTooLarge,
    StoreReadOnly,
    StoreUnavailable,
    UnknownKind,
    UnknownStore,
)
from jobyard.executors.python.payload import MAX_DEPTH
from jobyard.testing import drain


@pytest.fixture(params=["memory", "sqlite"])
async def yard(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Jobyard]:
    """After each refusal the store is as it was: empty, and its counts agree."""
    yard = Jobyard("memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db")

    @yard.job(name="work")
    async def work(ctx: Context, value: Any = None) -> None: ...

    @yard.job(name="typed")
    async def typed(ctx: Context, number: int, words: list[str] | None = None) -> None: ...

    async with yard:
        yield yard
        assert (await yard.page()).items == ()
        assert await yard.store.audit() == []


def test_decorators_without_their_arguments_are_errors(yard: Jobyard) -> None:
    with pytest.raises(BadOption):
        yard.cron(lambda: None)  # type: ignore[arg-type]  # `@yard.cron` without parentheses
    with pytest.raises(BadOption):
        yard.job("mail")  # type: ignore[call-overload]  # the queue is a keyword


async def test_a_list_of_prepared_jobs_is_an_error(yard: Jobyard) -> None:
    with pytest.raises(BadInput):
        await yard.enqueue_many([])  # type: ignore[arg-type]


def nested(depth: int, leaf: Any = None) -> Any:
    for _ in range(depth):
        leaf = [leaf]
    return leaf


def circular() -> Any:
    knot: list[Any] = []
    knot.append({"knot": knot})
    return knot


@pytest.mark.parametrize(
    ("value", "cause"),
    [
        (object(), "type object is unsupported"),
        (float("nan"), "holds nan"),
        ({"a": [1.0, float("-inf")]}, "holds -inf"),
        ({float("nan"): 1}, "holds nan"),
        ({(1, 2): 3}, "keys"),
        ("caf\udce9", "surrogates"),
        (lambda: None, "type function is unsupported"),
        (circular(), "recursion"),
        (nested(100_000), "recursion"),
    ],
    ids=["object", "nan", "infinity", "nan-key", "tuple-key", "surrogate", "function", "circular", "deep"],
)
async def test_payload_that_json_cannot_hold(yard: Jobyard, value: Any, cause: str) -> None:
    good = declarations_of(yard).tasks["work"].call(1)
    assert good is not None
    for payload in (value, [value]):
        with pytest.raises(PayloadNotJson, match=cause) as caught:
            await declarations_of(yard).tasks["work"].enqueue(payload)
        assert "payload of work" in str(caught.value)
        assert "Pass text, finite numbers" in str(caught.value)
    with pytest.raises(PayloadNotJson) as caught:
        await declarations_of(yard).tasks["work"].options(private=value).enqueue()
    assert caught.value.option == "private"
    with pytest.raises(PayloadNotJson, match="signal data"):
        await yard.signal("any", "name", value)


async def test_payload_is_taken_to_a_depth_and_refused_by_name_beyond(yard: Jobyard) -> None:
    fits = MAX_DEPTH - 1  # the object of the parameters is the outermost
    assert declarations_of(yard).tasks["work"].call(nested(fits))
    for depth in (fits + 1, 300, 900, 980, 983, 1000, 1100, 3000):
        with pytest.raises(PayloadNotJson, match="payload of work"):
            declarations_of(yard).tasks["work"].call(nested(depth))


async def test_bytes_and_dates_travel_when_the_parameter_says_so(tmp_path: Path) -> None:
    async with Jobyard("memory://") as yard:

        @yard.job()
        async def keep(ctx: Context, data: bytes, at: datetime) -> tuple[bytes, datetime]:
            assert isinstance(data, bytes)
            return data, at

        handle = await keep.enqueue(b"\x00\xff", datetime(2026, 1, 1, tzinfo=UTC))
        await drain(yard)
        assert await handle.result(60) == (b"\x00\xff", datetime(2026, 1, 1, tzinfo=UTC))


async def test_payload_too_large(yard: Jobyard) -> None:
    with pytest.raises(PayloadTooLarge, match=r"payload of work is 1,\d{3},\d{3} bytes.*1,048,576.*pass a reference"):
        await declarations_of(yard).tasks["work"].enqueue("x" * (1 << 20))
    with pytest.raises(PayloadTooLarge):
        await declarations_of(yard).tasks["work"].options(private="x" * (1 << 20)).enqueue()


async def test_payload_that_does_not_fit(yard: Jobyard) -> None:
    typed: Any = declarations_of(yard).tasks["typed"]
    calls: list[tuple[Callable[[], Awaitable[Any]], str]] = [
        (lambda: typed.enqueue("1"), "number: expected int, got str"),
        (typed.enqueue, 'missing parameter "number"'),
        (lambda: typed.enqueue(1, words=[2]), "expected str, got int"),
        (lambda: typed.enqueue(1, word=[]), 'unknown parameter "word"'),
        (lambda: typed.enqueue(1, [], 3), "takes 2 arguments, not 3"),
        (lambda: typed.enqueue(1, number=1), "got multiple values for number"),
        (lambda: yard.enqueue("typed", [1]), "expected object, got array"),
    ]
    for call, cause in calls:
        with pytest.raises(BadInput, match=cause):
            await call()


def test_unknown_options_of_queues_and_workers(yard: Jobyard) -> None:
    with pytest.raises(BadOption, match=r'Unknown option max_runing of queue\. Did you mean "max_running"\?'):
        yard.queue("mail", max_runing=1)  # type: ignore[call-arg]
    with pytest.raises(BadOption, match=r'Unknown option concurency of worker\. Did you mean "concurrency"\?'):
        yard.worker(concurency=1)  # type: ignore[call-arg]
    yard.queue(name="mail", max_running=1)


@pytest.mark.parametrize("word", ["delay", "apply_async", "send", "defer"])
def test_how_other_queues_enqueue(yard: Jobyard, word: str) -> None:
    work = declarations_of(yard).tasks["work"]
    with pytest.raises(AttributeError, match=r"Write await work\.enqueue\(…\), or wait"):
        getattr(work, word)
    assert not hasattr(work, "anything")
    assert repr(work) == "<Task work>"


async def test_unknown_kind(yard: Jobyard) -> None:
    with pytest.raises(UnknownKind, match=r'No handler is declared for kind typd\. Did you mean "typed"\?'):
        await yard.enqueue("typd", {})


HUGE = 10**5000
OPTIONS: list[tuple[str, Any]] = [
    *[("delay", value) for value in (-1, -0.001, float("nan"), 1e300, HUGE, "5", True, timedelta(seconds=-1))],
    *[("run_at", value) for value in (datetime(2026, 1, 1), 1234)],
    *[("timeout", value) for value in (0, -1, float("inf"))],
    *[("priority", value) for value in (1.5, HUGE, "high", True)],
    *[("max_attempts", value) for value in (0, -1, HUGE)],
    *[("queue", value) for value in ("", "a\nb", "x" * 201, 5, "caf\udce9")],
    *[("group", value) for value in ("", "\x00")],
    *[("unique", value) for value in ("", 5, Unique(""), Unique("a", UniqueScope.PERIOD))],
    ("unique", Unique("a", "active")),  # type: ignore[arg-type]
    *[("backoff", value) for value in (-1, float("nan"), [1, -1], [], "12", Fixed(-1), Delays((-1.0,)), object())],
    ("backoff", Exponential(base_seconds=float("nan"))),
    *[("tags", value) for value in ("abc", ["x"] * 3 + [f"t{n}" for n in range(60)])],
    ("prioritty", 1),
]


@pytest.mark.parametrize(("option", "value"), OPTIONS, ids=[f"{o[0]}-{n}" for n, o in enumerate(OPTIONS)])
async def test_options_outside_their_range(yard: Jobyard, option: str, value: Any) -> None:
    with pytest.raises(BadOption) as caught:
        await yard.enqueue("work", {}, **{option: value})
    assert caught.value.option == option


async def test_a_duration_as_text(yard: Jobyard) -> None:
    with pytest.raises(BadOption, match=r"timeout must be a number of seconds, not '5m'"):
        await yard.enqueue("work", {}, timeout="5m")  # type: ignore[arg-type]


async def test_all_invalid_options_are_reported_at_once(yard: Jobyard) -> None:
    with pytest.raises(BadOption) as caught:
        await yard.enqueue("work", {}, priority="high", queue="mail", tags=["", "a"], delay=-1)  # type: ignore[arg-type]
    assert [error.option for error in (caught.value, *caught.value.others)] == ["priority", "tags", "delay"]


async def test_delay_and_run_at_together(yard: Jobyard) -> None:
    with pytest.raises(BadOption) as caught:
        await yard.enqueue("work", {}, delay=1, run_at=datetime.now(UTC))
    assert [error.option for error in (caught.value, *caught.value.others)] == ["delay", "run_at"]


async def test_times_at_the_edge_of_the_calendar(tmp_path: Path) -> None:
    async with Jobyard(f"sqlite:///{tmp_path}/jobs.db") as yard:

        @yard.job()
        async def work(ctx: Context) -> None: ...

        await work.options(run_at=datetime.max.replace(tzinfo=UTC)).enqueue()
        await work.options(run_at=datetime.min.replace(tzinfo=UTC)).enqueue()
        [ran] = await drain(yard)
        assert ran.state is State.COMPLETED
        assert await yard.store.audit() == []


@pytest.mark.parametrize("limit", [-1, 1.5, HUGE, "10", True, None], ids=lambda value: type(value).__name__)
async def test_absurd_limits(yard: Jobyard, limit: Any) -> None:
    await yard.store.configure("q", QueueSettings())
    with pytest.raises(BadOption) as caught:
        await yard.set_limit("q", "g", limit)
    assert caught.value.option == "limit"
    if limit is not None:
        for word in ("max_running", "max_per_group", "max_waiting", "max_waiting_per_group", "keep_completed"):
            with pytest.raises(BadOption) as caught:
                yard.queue("q", **{word: limit})
            assert caught.value.option == word
    assert [info.settings for info in await yard.queues()] == [QueueSettings()]


async def test_workers_that_make_no_sense(yard: Jobyard) -> None:
    words: list[dict[str, Any]] = [
        {"concurrency": 0},
        {"concurrency": HUGE},
        {"lease": 0},
        {"shutdown_timeout": -1},
        {"queues": [""]},
        {"queues": "default"},
    ]
    for given in words:
        with pytest.raises(BadOption) as caught:
            yard.worker(**given)
        assert caught.value.option in given


@pytest.mark.parametrize(
    ("url", "cause"),
    [
        ("sqlit:///jobs.db", r'sqlit:///jobs\.db has an unknown scheme\. Did you mean "sqlite"\? Known:'),
        ("jobs.db", "jobs.db has no ://"),
        ("postgres//host/db", r"postgres//host/db has no ://\. Did you mean \"postgres\"\?"),
        ("sqlite:///jobs.db?sync=off", "unknown option sync.* Known: synchronous"),
        ("", "has no ://"),
        ("oracle://user:secret@host/db", "oracle://host/db has an unknown scheme"),
        ("sqlite://jobs.db", "does not name a file. Write sqlite:///jobs.db"),
        ("sqlite:///", "does not name a file"),
        ("sqlite:///:memory:", "memory://"),
        ("sqlite:///a.db?synchronus=off", 'Did you mean "synchronous"'),
        ("sqlite:///a.db?synchronous=maybe", "full, normal, off"),
        ("sqlite:///a#b.db", "%23"),
        ("sqlite:///a%00b.db", "control character"),
        ("sqlite://[bad/a.db", "is not a URL"),
        (Path("jobs.db"), "URL"),
    ],
)
def test_unknown_store(url: Any, cause: str) -> None:
    with pytest.raises(UnknownStore, match=cause) as caught:
        Jobyard(url)
    assert "secret" not in str(caught.value)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def refused(folder: Path, name: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        async with Jobyard(f"sqlite:///{folder}/{name}"):
            pass


async def test_a_file_that_is_not_a_database(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("Dear diary, " * 500)
    before = file.read_bytes()
    await refused(tmp_path, "notes.txt", NotADatabase)
    assert file.read_bytes() == before
    assert names(tmp_path) == ["notes.txt"]


async def test_a_database_of_a_newer_version(tmp_path: Path) -> None:
    async with Jobyard(f"sqlite:///{tmp_path}/jobs.db"):
        pass
    with sqlite3.connect(tmp_path / "jobs.db") as connection:
        connection.execute("UPDATE jobyard_schema SET version = 999")
        before = list(connection.iterdump())
    connection.close()
    await refused(tmp_path, "jobs.db", NewerSchema)
    connection = sqlite3.connect(tmp_path / "jobs.db")
    assert list(connection.iterdump()) == before
    connection.close()


async def test_a_missing_folder(tmp_path: Path) -> None:
    await refused(tmp_path, "no/jobs.db", StoreReadOnly)
    assert names(tmp_path) == []


async def test_a_folder_in_place_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "jobs.db").mkdir()
    await refused(tmp_path, "jobs.db", StoreReadOnly)


async def test_a_store_that_is_not_open(tmp_path: Path) -> None:
    yard = Jobyard(f"sqlite:///{tmp_path}/jobs.db")
    with pytest.raises(StoreUnavailable):
        await yard.queues()


@pytest.mark.parametrize("make", [object, lambda: {"a": float("nan")}, lambda: "x" * (1 << 20), circular])
async def test_a_handler_that_returns_what_json_cannot_hold(tmp_path: Path, make: Callable[[], Any]) -> None:
    async with Jobyard(f"sqlite:///{tmp_path}/jobs.db") as yard:

        @yard.job()
        async def work(ctx: Context) -> Any:
            return make()

        @yard.job()
        async def other(ctx: Context) -> int:
            return 1

        handle, good = await work.enqueue(), await other.enqueue()
        async with yard.worker():
            with pytest.raises(JobFailed, match="The result of work"):
                await handle.result(60)
            assert await good.result(60) == 1
        job = await handle.info()
        assert (job.attempt, job.result) == (1, None)
        assert await yard.store.audit() == []


async def test_a_rejected_job_does_not_reject_the_others(tmp_path: Path) -> None:
    """Calls that meet in the same moment share a transaction; a bad one fails alone."""
    yard = Jobyard(f"sqlite:///{tmp_path}/jobs.db")
    yard.queue("full", max_waiting=0)

    @yard.job()
    async def work(ctx: Context) -> None: ...

    async with yard:
        calls = [work.options(queue="full" if n % 5 == 0 else "free").enqueue() for n in range(50)]
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [n for n, answer in enumerate(results) if isinstance(answer, Exception)] == list(range(0, 50, 5))
        assert {queue.name: queue.waiting for queue in await yard.queues()} == {"full": 0, "free": 40}
        assert await yard.store.audit() == []
