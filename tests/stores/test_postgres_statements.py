"""The named tuples of the codec list the parameters of their statements in order, and errors carry their data."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import asyncpg
import pytest
from tests.conformance.support import new
from tests.stores.postgres_support import schema, store

from jobyard.domain.job import QueueSettings
from jobyard.errors import QueueFull, duplicate_job_id
from jobyard.stores.postgres import PostgresStore, type_cache
from jobyard.stores.postgres.codec import (
    AdoptColumns,
    ClaimRequest,
    ExchangeArguments,
    JobColumns,
    PlainJob,
    ReportRow,
    TransitionRow,
)
from jobyard.stores.postgres.histories import CheckpointColumns
from jobyard.stores.postgres.pool import Pool
from jobyard.stores.postgres.schedules import TickColumns
from jobyard.stores.postgres.settle import OTHER_COLUMNS
from jobyard.stores.postgres.statements import Statements

__all__ = ["schema", "store"]


@pytest.mark.parametrize(
    ("statement", "fields"),
    [
        ("adopt", ("now", *PlainJob._fields, *AdoptColumns._fields)),
        ("apply", ("now", *TransitionRow._fields)),
        ("decide", ("now", *TickColumns._fields, *JobColumns._fields)),
        ("insert", ("now", "names", "strict", *JobColumns._fields)),
        ("insert_for", ("now", *PlainJob._fields, *ClaimRequest._fields)),
        ("insert_one", ("now", *PlainJob._fields)),
        ("report", ("now", *ReportRow._fields)),
    ],
)
def test_parameters_are_in_the_order_of_the_fields(statement: str, fields: tuple[str, ...]) -> None:
    assert numbered(statement) == [(f"p_{field}", number) for number, field in enumerate(fields, 1)]


def test_parameters_of_an_exchange_are_in_the_order_of_its_fields() -> None:
    fields = ExchangeArguments._fields
    assert numbered("exchange") == [(field, number) for number, field in enumerate(fields, 1)]
    assert set(OTHER_COLUMNS) <= set(fields)
    assert [field.removeprefix("p_") for field in fields[1:6]] == list(ClaimRequest._fields)


def test_parameters_of_a_checkpoint_are_in_the_order_of_its_fields() -> None:
    fields = ("p_now", *CheckpointColumns._fields)
    assert numbered("checkpoint") == [(field, number) for number, field in enumerate(fields, 1)]


def numbered(statement: str) -> list[tuple[str, int]]:
    found = re.findall(r"(\w+) => (?:\"public\"\.jobyard_now\()?\$(\d+)", Statements("public")[statement])
    return [(name, int(number)) for name, number in found]


async def test_errors_of_functions_carry_their_data(store: PostgresStore) -> None:
    queue, group = 'a "queue"', "a\\group"
    await store.configure(queue, QueueSettings(max_waiting=2, max_waiting_per_group=1))
    with pytest.raises(QueueFull) as caught:
        await store.insert([new(queue=queue) for _ in range(3)])
    assert str(caught.value) == str(QueueFull.over(2, queue))
    with pytest.raises(QueueFull) as caught:
        await store.insert([new(queue=queue, group=group) for _ in range(2)])
    assert str(caught.value) == str(QueueFull.over(1, queue, group))
    job = new()
    await store.insert([job])
    with pytest.raises(type(duplicate_job_id(job.id)), match=job.id):
        await store.insert([job])


async def test_built_in_types_are_introspected_once(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By any number of connections; types that the server numbers itself are introspected by each."""
    asked: list[frozenset[int]] = []
    introspect = asyncpg.Connection._introspect_types

    async def counted(self: Any, typeoids: Iterable[int], timeout: float | None) -> Any:
        asked.append(frozenset(typeoids))
        return await introspect(self, typeoids, timeout)

    monkeypatch.setattr(asyncpg.Connection, "_introspect_types", counted)
    monkeypatch.setattr(type_cache, "_known", {})
    for query, times in (("SELECT '{1}'::bigint[]", 1), ("SELECT '{a}'::information_schema.sql_identifier[]", 2)):
        asked.clear()
        for _ in range(2):
            connection = await Pool(postgres_url, postgres_url, size=1, pooled=False).connect()
            [row] = await connection.fetch(query)
            await connection.close()
            assert len(row[0]) == 1
        assert len(asked) == times, query
