"""The cost of a claim does not grow with finished jobs, blocked jobs or groups; counted in steps, not timed."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from tests.story.sizes import size

from jobyard.domain.job import NewJob, QueueSettings, State
from jobyard.domain.lease import Lease
from jobyard.domain.state import Settlement, Transition
from jobyard.stores.sqlite.audit import audit
from jobyard.stores.sqlite.claim import claim
from jobyard.stores.sqlite.database_file import begin, connect
from jobyard.stores.sqlite.insert import insert_jobs
from jobyard.stores.sqlite.queues import configure
from jobyard.stores.sqlite.schema import migrate
from jobyard.stores.sqlite.settle import settle_all
from jobyard.stores.sqlite.sql import SQL
from jobyard.stores.sqlite.transaction import Transaction

NOW = 1_000_000
DONE = Transition(to=State.COMPLETED, result=b"null")
LIVE_GROUPS, JOBS_EACH, BATCH = 40, 30, 50
FINISHED, BLOCKED, GROUPS = size((60_000, 12_000, 6_000), (1_000_000, 200_000, 100_000))


class File:
    """The store's functions on a plain connection, so that steps of SQLite's virtual machine can be counted."""

    def __init__(self, path: Path) -> None:
        self.connection = connect(path, "OFF", writer=True)
        migrate(self.connection, path)
        self.write(lambda tx: configure(tx, "q", QueueSettings(max_per_group=10, keep_completed=2_000_000)))

    def write(self, work: Callable[[Transaction], object]) -> object:
        begin(self.connection)
        tx = Transaction(self.connection, NOW)
        response = work(tx)
        tx.flush()
        self.connection.execute("COMMIT")
        return response

    def count(self, work: Callable[[Transaction], object]) -> tuple[object, int]:
        """Return what the work returns, and the number of instructions that SQLite's virtual machine ran for it."""
        steps = 0

        def step() -> int:
            nonlocal steps
            steps += 1
            return 0

        self.connection.set_progress_handler(step, 1)
        try:
            return self.write(work), steps
        finally:
            self.connection.set_progress_handler(None, 1)


def fill_live(file: File) -> None:
    jobs = [
        NewJob(id=f"live-{group}-{number}", kind="k", queue="q", group=f"live-{group:03}")
        for number in range(JOBS_EACH)
        for group in range(LIVE_GROUPS)
    ]
    file.write(lambda tx: insert_jobs(tx, jobs))


def fill_history(connection: sqlite3.Connection) -> None:
    """Write many finished jobs and a large blocked backlog in bulk, as the store would have left them."""
    count = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)"
    job = """INSERT INTO jobyard_job SELECT i + ?, ? || i, 'k', 'q', ?, 0, x'7b7d', NULL, 3, 0, 0, NULL, NULL, 1, 1,
             NULL, NULL, NULL, NULL, 0 FROM n"""
    connection.execute("BEGIN")
    connection.execute(f"{count} {job}", (FINISHED, 0, "done-", "past"))
    connection.execute(
        f"""{count} INSERT INTO jobyard_done SELECT i, i, 'q', 0, 'COMPLETED', 1, 1, 'w', 0, 1, x'6e756c6c', NULL
            FROM n""",
        (FINISHED,),
    )
    per_group = BLOCKED // GROUPS
    grouped = job.replace("'q', ?,", "'q', ? || (i % ?),")
    connection.execute(f"{count} {grouped}", (BLOCKED, FINISHED, "wait-", "blocked-", GROUPS))
    connection.execute(
        f"{count} INSERT INTO jobyard_ready SELECT 'q', 'blocked-' || (i % ?), 0, i + ? FROM n",
        (BLOCKED, GROUPS, FINISHED),
    )
    connection.execute(
        f"{count} INSERT INTO jobyard_group SELECT 'q', 'blocked-' || (i - 1), 0, 0, i, ?, 0, 0, 0 FROM n",
        (GROUPS, per_group),
    )
    connection.execute("UPDATE jobyard_queue SET completed = ?, waiting = ?, turn = 1", (FINISHED, BLOCKED))
    connection.execute(
        "UPDATE jobyard_counter SET sequence = ?, turn = ?, finish = ?", (FINISHED + BLOCKED, GROUPS, FINISHED)
    )
    connection.execute("COMMIT")


@pytest.mark.timeout(600)
def test_the_cost_of_a_claim_does_not_grow(tmp_path: Path) -> None:
    small, large = File(tmp_path / "small.db"), File(tmp_path / "large.db")
    fill_history(large.connection)
    fill_live(small)
    fill_live(large)
    assert audit(large.connection) == []
    for file in (small, large):
        # With statistics, as after ANALYZE by an administrator: they must not change the plans.
        file.connection.execute("ANALYZE")
    costs: list[list[int]] = []
    for file in (small, large):
        steps = []
        settlements: list[Settlement] = []
        for _ in range(10):

            def exchange(tx: Transaction, settlements: list[Settlement] = settlements) -> list[Lease]:
                settle_all(tx, settlements)
                return claim(tx, "w", ["q"], BATCH, 15)

            response, cost = file.count(exchange)
            assert isinstance(response, list)
            assert len(response) == BATCH
            settlements = [Settlement(lease.key, DONE) for lease in response]
            steps.append(cost)
        costs.append(steps)
    for few, many in zip(*costs, strict=True):
        assert many <= few * 1.02, f"{few} steps in the small file, {many} in the large one"


HOT = [
    "load_queue", "load_group", "load_groups", "list_open_groups", "next_jobs_of_group", "delete_ready_through",
    "load_leases", "delete_leases", "extend_lease", "check_lease", "list_cancel_requests", "list_due",
    "next_delayed", "list_oldest", "delete_all_done", "delete_jobs", "delete_extras", "load_unique_key",
    "release_unique_key", "load_job_status", "load_job", "has_work", "has_any_work", "list_ended",
    "count_jobs_ahead", "count_groups_ahead", "update_group", "delete_ready", "delete_delayed",
    "load_signal_and_priority", "load_armed", "list_armed", "save_decided", "disarm", "delete_ticks", "trim_ticks",
    "list_ticks", "last_log_number", "trim_log",
    "load_entry", "list_entries", "count_entries", "count_signals", "next_signal", "take_signal", "delete_entry",
    "delete_entries_except", "delete_histories", "replace_payload", "reset_deaths", "load_extra", "delete_extra",
    "list_lease_extras", "list_known_ids", "insert_ended", "delete_ended",
]  # fmt: skip


@pytest.mark.parametrize("name", HOT)
def test_hot_statements_use_an_index_and_sort_nothing(tmp_path: Path, name: str) -> None:
    file = File(tmp_path / "plan.db")
    statement = SQL[name]
    names = re.findall(r":(\w+)", statement)
    parameters = dict.fromkeys(names, "[]") if names else ["[]"] * statement.count("?")
    plan = [row[3] for row in file.connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)]
    # A plan may scan the given list, the queues (few), and what an index keeps in order.
    allowed = (
        "SCAN json_each",
        "SCAN n VIRTUAL",
        "SCAN e VIRTUAL",
        "SCAN q",
        "SCAN jobyard_delayed",
        "SCAN (subquery",
        "SCAN CONSTANT ROW",
    )
    scans = [line for line in plan if line.startswith("SCAN") and not line.startswith(allowed)]
    assert not scans, plan
    assert not [line for line in plan if "TEMP B-TREE" in line], plan


@pytest.mark.timeout(600)
def test_polling_settling_and_claiming_do_not_grow(tmp_path: Path) -> None:
    """With recent finished jobs that retention must keep, with blocked groups, and with many other queues."""
    named = [f"other-{number:04}" for number in range(20)]
    many = [f"many-{number:04}" for number in range(3000)]
    costs: list[tuple[int, int, int, int]] = []
    for name in ("small", "large"):
        file = File(tmp_path / f"{name}.db")
        if name == "large":
            fill_history(file.connection)
            file.connection.execute("UPDATE jobyard_done SET finished_at = ?", (NOW,))
            file.write(partial(insert_jobs, jobs=[NewJob(id=queue, kind="k", queue=queue) for queue in many]))
        # The cap is not reached: the jobs above it would be removed by these settlements.
        young = QueueSettings(max_per_group=10, keep_completed=0, keep_completed_seconds=3600, keep_at_most=10_000_000)
        file.write(partial(configure, name="q", settings=young))
        fill_live(file)
        file.write(partial(insert_jobs, jobs=[NewJob(id=queue, kind="k", queue=queue) for queue in named]))
        look = file.count(lambda tx: tx.cursor.execute(SQL["has_work"], ('["q"]',)).fetchall())[1]
        leases, _ = file.count(lambda tx: claim(tx, "w", ["q"], 10, 15))
        assert isinstance(leases, list)
        done = [Settlement(lease.key, DONE) for lease in leases]
        settled = file.count(partial(settle_all, settlements=done))[1]
        turns = file.count(lambda tx: claim(tx, "w", named, 10, 15))[1]
        anything = file.count(lambda tx: claim(tx, "w", [], 10, 15))[1]
        costs.append((look, settled, turns, anything))
    small, large = costs
    assert large[0] <= small[0] * 1.02
    assert large[1] <= small[1] * 1.02 + 200, "a settlement reads one of the recent jobs"
    assert large[2] <= small[2] * 1.02
    # A claim of all queues reads the row of each queue, and nothing more.
    assert large[3] <= small[3] + len(many) * 60
