"""Recount of everything that is stored, compared with the counts and indexes kept."""

from __future__ import annotations

from jobyard.stores.redis.client import RedisClient

# It reads everything, at about 10 µs per job: the usual deadline would fail it from half a million jobs on.
AUDIT_SECONDS = 300.0


async def audit(client: RedisClient) -> list[str]:
    found: list[bytes] = []
    for name in sorted(await client.execute("SMEMBERS", f"{client.prefix}:queues")):
        found += await client.call("audit", {"name": name.decode()}, extra_seconds=AUDIT_SECONDS)
    found += await client.call("audit_schedules", {}, extra_seconds=AUDIT_SECONDS)
    return [sentence.decode() for sentence in found]
