"""Recount of everything that is stored, compared with the counts and indexes kept; and its repair."""

from __future__ import annotations

import re

from jobyard.stores.redis.client import RedisClient
from jobyard.stores.redis.codec import decode_queue

# It reads everything, at about 10 µs per job: the usual deadline would fail it from half a million jobs on.
AUDIT_SECONDS = 300.0
KEYS_PER_SCAN = 1000


async def audit(client: RedisClient) -> list[str]:
    listed = await listed_queues(client)
    found = [_unlisted(name) for name in sorted(await stored_queues(client) - listed)]
    for name in sorted(listed):
        found += await audit_queue(client, name)
    sentences = await client.call("audit_schedules", {}, extra_seconds=AUDIT_SECONDS)
    return found + [sentence.decode() for sentence in sentences]


async def repair(client: RedisClient) -> list[str]:
    """Each queue in one command, so that workers may go on meanwhile."""
    repaired: list[str] = []
    for name in sorted(await stored_queues(client) - await listed_queues(client)):
        await client.execute("SADD", f"{client.prefix}:queues", name)
        repaired.append(_unlisted(name))
    for name in sorted(await listed_queues(client)):
        before = await audit_queue(client, name)
        if before:
            await client.call("repair", {"name": name}, extra_seconds=AUDIT_SECONDS)
            after = set(await audit_queue(client, name))
            repaired += [sentence for sentence in before if sentence not in after]
    return repaired


async def audit_queue(client: RedisClient, name: str) -> list[str]:
    sentences: list[bytes] = await client.call("audit", {"name": name}, extra_seconds=AUDIT_SECONDS)
    return [sentence.decode(errors="replace") for sentence in sentences]


async def listed_queues(client: RedisClient) -> set[str]:
    return {name.decode() for name in await client.execute("SMEMBERS", f"{client.prefix}:queues")}


async def stored_queues(client: RedisClient) -> set[str]:
    """The queues that have settings, also those missing from the list; reads all names of keys in small steps."""
    escaped = re.sub(r"([\[\]*?\\^-])", r"\\\1", client.prefix)
    start, end = len(client.prefix) + 2, -len("}:queue")
    found: set[str] = set()
    cursor: bytes = b"0"
    while True:
        cursor, keys = await client.execute("SCAN", cursor, "MATCH", f"{escaped}:{{*}}:queue", "COUNT", KEYS_PER_SCAN)
        found.update(key.decode()[start:end] for key in keys)
        if cursor == b"0":
            return found


def _unlisted(name: str) -> str:
    return f"queue {decode_queue(name.encode())} is missing from the list of queues"
