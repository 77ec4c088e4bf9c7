"""The store that kills its process: the death counts for the job that ordered it, and for no other."""

from __future__ import annotations

import os
from pathlib import Path
from typing import cast

import pytest
from tests.conformance.support import new
from tests.story.killing_store import KillingStore

from jobyard.config.store_factory import make_store
from jobyard.domain.job import State
from jobyard.domain.outcome import Park
from jobyard.domain.state import Settlement, judge
from jobyard.ports.store import Store


class Killed(BaseException):
    pass


@pytest.mark.parametrize(("kill_at", "settled"), [(1, False), (2, True)])
async def test_no_other_job_is_claimed_by_the_exchange_that_kills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kill_at: int, settled: bool
) -> None:
    def die(_pid: int, _signal: int) -> None:
        raise Killed

    monkeypatch.setattr(os, "kill", die)
    memory = make_store("memory://")
    store = cast(Store, KillingStore(memory, tmp_path))
    jobs = [new(payload=b'{"job": "dies", "kill_at": %d}' % kill_at), new(payload=b'{"job": "other"}')]
    await memory.insert(jobs)
    [lease] = (await store.exchange("w", [], ["default"], 1, 60.0)).leases
    with pytest.raises(Killed):
        await store.exchange("w", [Settlement(lease.key, judge(lease, Park("go")))], ["default"], 1, 60.0)
    states = [job.state for each in jobs if (job := await memory.get(each.id)) is not None]
    assert states == [State.PENDING if settled else State.RUNNING, State.PENDING]
