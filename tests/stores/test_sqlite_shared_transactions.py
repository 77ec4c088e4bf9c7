"""Operations that share a transaction return what they would return in transactions of their own."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.story.sizes import size

from jobyard.domain.job import NewJob, QueueSettings, State, Unique
from jobyard.domain.lease import LeaseKey
from jobyard.domain.schedule import Verdict
from jobyard.domain.state import Settlement, Transition
from jobyard.ports.admin_store import Action
from jobyard.ports.schedule_store import Decided, Tick
from jobyard.stores.sqlite import change, queues, schedules
from jobyard.stores.sqlite.audit import audit
from jobyard.stores.sqlite.claim import claim
from jobyard.stores.sqlite.database_file import begin, connect
from jobyard.stores.sqlite.insert import insert_jobs
from jobyard.stores.sqlite.schema import migrate
from jobyard.stores.sqlite.settle import settle_all
from jobyard.stores.sqlite.transaction import Transaction

NOW = 1_000_000
Operation = Callable[[Transaction, "Results"], None]


class Results:
    """What the operations returned."""

    def __init__(self) -> None:
        self.claimed: list[str] = []
        self.held: list[LeaseKey] = []
        self.decided: list[Decided] = []
        self.number = 0


def inserting(queue: str, groups: list[str], priority: int) -> Operation:
    def operation(tx: Transaction, results: Results) -> None:
        jobs = []
        for group in groups:
            results.number += 1
            jobs.append(
                NewJob(id=f"job-{results.number}", kind="k", queue=queue, group=group or None, priority=priority)
            )
        insert_jobs(tx, jobs)

    return operation


def claiming(wanted: int) -> Operation:
    def operation(tx: Transaction, results: Results) -> None:
        for lease in claim(tx, "w", ["q", "r"], wanted, 15):
            results.claimed.append(lease.job_id)
            results.held.append(lease.key)

    return operation


def settling(tx: Transaction, results: Results) -> None:
    if results.held:
        assert settle_all(tx, [Settlement(results.held.pop(0), Transition(to=State.COMPLETED, result=b"null"))]) == []


def changing(action: Action, number: int) -> Operation:
    return lambda tx, results: void(change.change(tx, action, [f"job-{number}"], "", 5))


def deciding(
    schedule: str, instants: list[int], queue: str, group: str | None, key: str | None, skips: bool
) -> Operation:
    def operation(tx: Transaction, results: Results) -> None:
        ticks = []
        for at in instants:
            results.number += 1
            unique = None if key is None else Unique(key)
            job = NewJob(id=f"job-{results.number}", kind="k", queue=queue, group=group, unique=unique)
            tick = Tick(schedule=schedule, revision=1, at=at, queue=queue, verdict=Verdict.FIRED, job=job)
            ticks.append(msgspec.structs.replace(tick, skip_if_held=skips))
        results.decided += schedules.decide(tx, ticks)

    return operation


def arming(schedule: str, since: int | None) -> Operation:
    return lambda tx, results: void(schedules.arm(tx, schedule, 1, since))


def disarming(schedule: str) -> Operation:
    return lambda tx, results: void(schedules.disarm(tx, schedule, None))


def void(_: object) -> None:
    """Ignore a return value inside a lambda."""


OPERATIONS = st.one_of(
    st.builds(
        inserting,
        st.sampled_from("qr"),
        st.lists(st.sampled_from(["", "a", "b", "c"]), min_size=1, max_size=3),
        st.integers(0, 2),
    ),
    st.builds(claiming, st.integers(1, 3)),
    st.just(settling),
    st.builds(changing, st.sampled_from([Action.CANCEL, Action.PRIORITISE]), st.integers(1, 6)),
    st.builds(
        deciding,
        st.sampled_from(["nightly", "hourly"]),
        st.lists(st.integers(1, 9), min_size=1, max_size=3),
        st.sampled_from(["q", "r", "full"]),
        st.sampled_from([None, "a"]),
        st.sampled_from([None, "key"]),
        st.booleans(),
    ),
    st.builds(arming, st.sampled_from(["nightly", "hourly"]), st.sampled_from([0, 0, 5, None])),
    st.builds(disarming, st.sampled_from(["nightly", "hourly"])),
)


@contextmanager
def file() -> Iterator[sqlite3.Connection]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "yard.db"
        with closing(connect(path, "OFF", writer=True)) as connection:
            migrate(connection, path)
            perform(connection, [lambda tx, _: queues.configure(tx, "q", QueueSettings(max_per_group=2))], Results())
            perform(connection, [lambda tx, _: queues.configure(tx, "full", QueueSettings(max_waiting=2))], Results())
            perform(connection, [arming("nightly", 0), arming("hourly", 0)], Results())
            yield connection


def perform(connection: sqlite3.Connection, operations: list[Operation], results: Results) -> None:
    begin(connection)
    tx = Transaction(connection, NOW)
    for operation in operations:
        operation(tx, results)
    tx.flush()
    connection.execute("COMMIT")


@settings(deadline=None, max_examples=size(30, 300))  # a busy machine must not fail the test
@given(st.lists(st.lists(OPERATIONS, min_size=1, max_size=6), max_size=6))
def test_sharing_a_transaction_changes_nothing(batches: list[list[Operation]]) -> None:
    together, alone = Results(), Results()
    with file() as first, file() as second:
        for batch in batches:
            perform(first, batch, together)
            for operation in batch:
                perform(second, [operation], alone)
            assert together.claimed == alone.claimed
            assert together.decided == alone.decided
            for table in ("jobyard_tick", "jobyard_armed"):
                assert (
                    first.execute(f"SELECT * FROM {table}").fetchall()
                    == second.execute(f"SELECT * FROM {table}").fetchall()
                )
            assert audit(first) == []
            waiting = "SELECT queue, group_name, urgency, sequence FROM jobyard_ready"
            assert first.execute(waiting).fetchall() == second.execute(waiting).fetchall()
