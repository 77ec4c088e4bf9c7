"""Text with a NUL character, which one of the databases cannot hold: the same answer on every store."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conformance.support import get_job, insert_one, queue_info, running, settle

from jobyard.domain.job import Unique
from jobyard.domain.outcome import Failed
from jobyard.errors import BadInput
from jobyard.ports.admin_store import Action
from jobyard.ports.store import Store

NUL = "a\0b"


@pytest.mark.parametrize("field", ["id", "kind", "queue", "group", "tags", "unique"])
async def test_a_name_with_nul_is_rejected(store: Store, field: str) -> None:
    values: dict[str, Any] = {"tags": (NUL,), "unique": Unique(NUL)}
    await insert_one(store)
    with pytest.raises(BadInput):
        await insert_one(store, **{field: values.get(field, NUL)})
    assert (await queue_info(store)).waiting == 1


async def test_nul_in_a_reason_is_replaced(store: Store) -> None:
    failed = await running(store, max_attempts=1)
    await settle(store, failed, Failed(message=NUL))
    cancelled = await insert_one(store)
    await store.change(Action.CANCEL, [cancelled], reason=NUL)
    assert [(await get_job(store, job_id)).reason for job_id in (failed.job_id, cancelled)] == ["a␀b", "a␀b"]
