"""A Redis that keeps things to itself, as hosted ones do, is used all the same; the doctor says what it cannot see."""

from __future__ import annotations

import pytest
from tests.stores.redis_support import jobs, running

from jobyard.ports.store import Level
from jobyard.stores.redis import RedisStore


@pytest.mark.parametrize("forbidden", ["-info -config", "-config"])
async def test_a_user_who_may_not_ask_about_the_server(forbidden: str) -> None:
    with running() as server:
        owner = RedisStore(server.url)
        await owner.open()
        rules = ["on", ">secret", "~*", "&*", "+@all", *forbidden.split()]
        await owner._server.ask("ACL", "SETUSER", "app", *rules)
        await owner.close()
        store = RedisStore(server.url.replace("redis://", "redis://app:secret@"))
        await store.open()
        await store.insert(jobs("a"))
        assert [lease.job_id for lease in (await store.exchange("w", [], [], 1, 10.0)).leases] == ["a"]
        found = await store.diagnose()
        if "-info" in forbidden:
            assert [(finding.level, "does not let us ask" in finding.message) for finding in found] == [
                (Level.WARN, True)
            ]
        else:
            assert Level.FAIL not in {finding.level for finding in found}
            assert "persistence" in {finding.check for finding in found}
        await store.close()
