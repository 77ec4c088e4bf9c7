"""Redis users without INFO or CONFIG, as on hosted servers: the store works, and diagnose reports the gap."""

from __future__ import annotations

import pytest
from tests.stores.redis_support import jobs, running

from jobyard.ports.store import Level
from jobyard.stores.redis import RedisStore


@pytest.mark.parametrize("forbidden", ["-info -config", "-config"])
async def test_a_user_without_info_or_config(forbidden: str) -> None:
    with running() as server:
        owner = RedisStore(server.url)
        await owner.open()
        rules = ["on", ">secret", "~*", "&*", "+@all", *forbidden.split()]
        await owner._client.execute("ACL", "SETUSER", "app", *rules)
        await owner.close()
        store = RedisStore(server.url.replace("redis://", "redis://app:secret@"))
        await store.open()
        await store.insert(jobs("a"))
        assert [lease.job_id for lease in (await store.exchange("w", [], [], 1, 10.0)).leases] == ["a"]
        found = await store.diagnose()
        if "-info" in forbidden:
            assert [(finding.level, finding.check) for finding in found] == [(Level.WARN, "server")]
        else:
            assert Level.FAIL not in {finding.level for finding in found}
            assert "persistence" in {finding.check for finding in found}
        await store.close()
