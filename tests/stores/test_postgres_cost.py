"""The cost of an exchange does not grow with finished jobs, blocked jobs, groups or old statistics.

Measured in pages, not in time. An index of a thousand times as many rows may be a level or two deeper.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
from tests.stores.postgres_support import done, exchange, new_schema, opened
from tests.story.sizes import size

from jobyard.domain.job import NewJob, QueueSettings
from jobyard.domain.state import Settlement
from jobyard.ports.store import Level
from jobyard.stores.postgres import PostgresStore
from jobyard.stores.postgres.codec import ExchangeArguments, milliseconds
from jobyard.stores.postgres.settle import SettlementBatch, exchange_from_rows
from jobyard.stores.postgres.statements import Statements

LIVE_GROUPS, JOBS_EACH, BATCH = 40, 60, 50
FINISHED, BLOCKED, GROUPS = size((20_000, 12_000, 6_000), (300_000, 200_000, 100_000))
PAST = """
INSERT INTO {schema}.jobyard_job (sequence, id, kind, queue, group_name, priority, max_attempts, flags, run_at,
  created_at, payload)
  SELECT i, 'done-' || i, 'k', 'q', 'past', 0, 3, 0, 1, 1, '{{}}' FROM generate_series(1, {finished}) i;
INSERT INTO {schema}.jobyard_done (sequence, finish, finished_at, attempt, bucket, queue, state)
  SELECT i, i, 1, 1, 0, 'q', 'COMPLETED' FROM generate_series(1, {finished}) i;
INSERT INTO {schema}.jobyard_job (sequence, id, kind, queue, group_name, priority, max_attempts, flags, run_at,
  created_at, payload) SELECT i + {finished}, 'wait-' || i, 'k', 'q', 'blocked-' || i % {groups}, 0, 3, 0, 1, 1, '{{}}'
  FROM generate_series(1, {blocked}) i;
INSERT INTO {schema}.jobyard_ready
  SELECT 'q', 'blocked-' || i % {groups}, i + {finished}, 0, 0 FROM generate_series(1, {blocked}) i;
INSERT INTO {schema}.jobyard_group (queue, name, own_limit, turn, waiting, head)
  SELECT 'q', 'blocked-' || i - 1, 0, i, {blocked} / {groups}, 0 FROM generate_series(1, {groups}) i;
UPDATE {schema}.jobyard_queue SET completed = {finished}, finish_last = {finished}, waiting = {blocked},
  line_last = {groups};
SELECT setval('{schema}.jobyard_sequence', {finished} + {blocked});
"""


@pytest.fixture
async def connection(postgres_url: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    connection = await asyncpg.connect(postgres_url)
    yield connection
    await connection.close()


async def pages(connection: Any, schema: str, settlements: list[Settlement]) -> tuple[list[Settlement], int]:
    """Commit one exchange; return the settlements for the next one and the number of pages that this one read."""
    statement = Statements(schema)["exchange"]
    batch = SettlementBatch(settlements)
    arguments = ExchangeArguments(None, "w", "token", ["q"], BATCH, milliseconds(30), **batch.columns())
    transaction = connection.transaction()
    await transaction.start()
    [[plan]] = await connection.fetch(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}", *arguments)
    await transaction.rollback()
    buffers = json.loads(plan)[0]["Plan"]
    rows = await connection.fetch(statement, *arguments)
    leases = exchange_from_rows(rows, batch, "token").leases
    assert len(leases) == BATCH
    return [done(lease) for lease in leases], buffers["Shared Hit Blocks"] + buffers["Shared Read Blocks"]


async def fill(store: PostgresStore) -> None:
    jobs = [
        NewJob(id=f"live-{group}-{number}", kind="k", queue="q", group=f"live-{group:03}")
        for number in range(JOBS_EACH)
        for group in range(LIVE_GROUPS)
    ]
    await store.insert(jobs)


async def costs(connection: Any, store: PostgresStore, schema: str) -> list[int]:
    settlements: list[Settlement] = []
    found = []
    for _ in range(12):
        settlements, count = await pages(connection, schema, settlements)
        found.append(count)
    await exchange(store, 0, settlements, ["q"])
    return found[4:]  # the first ones fold in the inbox and read the catalog


@pytest.mark.timeout(600)
async def test_the_cost_of_an_exchange_does_not_grow(postgres_url: str, connection: Any) -> None:
    # Their age keeps all finished jobs, so that every exchange looks for old ones.
    settings = QueueSettings(max_per_group=10, keep_completed_seconds=1e10, keep_at_most=1_000_000)
    async with (
        new_schema(postgres_url) as one,
        new_schema(postgres_url) as other,
        opened(postgres_url, one) as small,
        opened(postgres_url, other) as large,
    ):
        for store in (small, large):
            await store.configure("q", settings)
        past = PAST.format(schema=other, finished=FINISHED, blocked=BLOCKED, groups=GROUPS)
        await connection.execute(past, timeout=300)
        assert await large.audit() == []
        for store in (small, large):
            await fill(store)
        await connection.execute("ANALYZE", timeout=300)
        few, many = await costs(connection, small, one), await costs(connection, large, other)
        assert max(many) < 2 * max(few), (few, many)
        assert await large.audit() == []


async def test_statistics_of_empty_tables_do_not_mislead_the_planner(postgres_url: str, connection: Any) -> None:
    async with (
        new_schema(postgres_url) as one,
        new_schema(postgres_url) as other,
        opened(postgres_url, one) as fresh,
        opened(postgres_url, other) as analysed,
    ):
        for store in (fresh, analysed):
            await store.configure("q", QueueSettings(max_per_group=10, keep_completed=1_000_000))
        for (table,) in await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = $1", other):
            await connection.execute(f"ANALYZE {other}.{table}")
        for store in (fresh, analysed):
            await fill(store)
        usual, misled = await costs(connection, fresh, one), await costs(connection, analysed, other)
        assert max(misled) < 1.3 * max(usual), (usual, misled)


async def test_an_old_snapshot_is_reported_and_its_cost_ends_with_it(
    postgres_url: str, connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it is open, VACUUM cannot remove old versions of the hot rows."""
    monkeypatch.setattr("jobyard.stores.postgres.diagnostics.OLD_SNAPSHOT_SECONDS", 0)
    async with new_schema(postgres_url) as schema, opened(postgres_url, schema) as store:
        await store.configure("q", QueueSettings(max_per_group=10, keep_completed=10, keep_completed_seconds=0))
        await fill(store)
        before = await costs(connection, store, schema)
        old = await asyncpg.connect(postgres_url, server_settings={"application_name": "the report"})
        async with old.transaction(isolation="repeatable_read"):
            await old.fetchval("SELECT count(*) FROM pg_class")
            await costs(connection, store, schema)
            warned = [finding for finding in await store.diagnose() if finding.check == "snapshot"]
            assert any(finding.level is Level.WARN and "the report" in finding.message for finding in warned)
            assert any(str(old.get_server_pid()) in finding.advice for finding in warned)
        await old.close()
        await connection.execute(f"VACUUM {schema}.jobyard_queue, {schema}.jobyard_group, {schema}.jobyard_lease")
        assert max(await costs(connection, store, schema)) < 1.5 * max(before)
