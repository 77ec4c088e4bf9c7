"""Checks of the Redis server: version, persistence, memory, role; and the version of the schema."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from jobyard.errors import NewerSchema, StoreError, StoreFull, StoreReadOnly, StoreUnavailable
from jobyard.ports.store import Finding, Level, Migration
from jobyard.stores.redis.client import RedisClient
from jobyard.stores.redis.errors import is_forbidden
from jobyard.stores.redis.scripts import built_in_commands

# 1: the first. 2: schedules, and logs that are trimmed. 3: histories; signals of schema 2 are still taken.
# 4: two ages and a cap in the row of a queue; rows of schema 3 are still read, see _queue_line.lua.
SCHEMA = 4
OLDEST_VERSION = (7, 0)
MEBIBYTE = 1 << 20
RISKS = ("persistence", "eviction")
WARN_SHARE, FAIL_SHARE = 0.8, 0.95  # of maxmemory


async def server_info(client: RedisClient) -> dict[str, str]:
    """The reply of INFO; empty where the server denies the command."""
    try:
        answer: bytes = await client.execute("INFO")
    except StoreError as error:
        if is_forbidden(error):
            return {}
        raise
    lines = (line.partition(":") for line in answer.decode(errors="replace").splitlines())
    return {key: value for key, mark, value in lines if mark}


async def prepare(client: RedisClient) -> None:
    """Reject an unsupported server, and write the version of the schema."""
    await client.sync_clock()
    info = await server_info(client)
    require_version(info, client.address.url)
    await require_permissions(client)
    key = f"{client.prefix}:schema"
    present = await client.execute("GET", key)
    if present is None:
        # Safe when several processes do this at once: all write the same value.
        await client.execute("SET", key, SCHEMA, "NX")
    elif int(present) < SCHEMA:
        # The older layout needs no conversion.
        await client.execute("SET", key, SCHEMA, "XX")
    reject_newer(int(present or 0), client.address.url)


def reject_newer(present: int, url: str) -> None:
    if present > SCHEMA:
        raise NewerSchema(
            f"Cannot open {url}: it was written by a newer jobyard (schema {present}, this one supports {SCHEMA}). "
            "Update jobyard, or use another prefix."
        )


def require_version(info: dict[str, str], url: str) -> None:
    if info.get("redis_mode") == "cluster":
        raise StoreUnavailable(f"Cannot use {url}: it is a Redis cluster. Use a single server.")
    version = info.get("redis_version")
    if version and tuple(int(part) for part in version.split(".")[:2]) < OLDEST_VERSION:
        raise StoreUnavailable(f"Cannot use {url}: its Redis is {version}. Use Redis 7.0 or newer.")


async def require_permissions(client: RedisClient) -> None:
    """A command that is denied half-way would have half happened: so nothing starts without all permissions."""
    channel = f"{client.prefix}:to:probe"
    words = {
        "TIME": ("TIME",),
        "PUBLISH": ("PUBLISH", channel, ""),
        "PUBSUB": ("PUBSUB", "NUMSUB", channel),
        "SUBSCRIBE": ("SUBSCRIBE", channel),
    }
    names = sorted({*built_in_commands(), *words})
    commands = [words.get(name, (name, *3 * (f"{client.prefix}:probe",))) for name in names]
    with suppress(StoreFull, StoreReadOnly):  # the library cannot be loaded now; other commands report it
        denied = [names[position - 1] for position in await client.call("denied", {"commands": commands})]
        if denied:
            raise StoreUnavailable(
                f"Cannot use the Redis at {client.address.url}: this user may not run {', '.join(denied)} on the keys "
                f"{client.prefix}:* and the channels {client.prefix}:to:*. See docs/redis.md for the permissions."
            )


async def migrations(client: RedisClient) -> list[Migration]:
    key = f"{client.prefix}:schema"
    present = int(await client.execute("GET", key) or 0)
    reject_newer(present, client.address.url)
    return [
        Migration(1, "first", f"SET {key} 1 NX", present >= 1),
        Migration(2, "schedules", f"SET {key} 2 XX", present >= 2),
        Migration(3, "histories", f"SET {key} 3 XX", present >= 3),
        Migration(4, "retention", f"SET {key} 4 XX", present >= 4),
    ]


async def findings(client: RedisClient) -> list[Finding]:
    info, damaged = await server_info(client), await damage(client)
    if not info:
        says = "memory, persistence and role are unknown: the server denies INFO"
        return [Finding(Level.WARN, "server", says, "allow this user INFO and CONFIG GET"), *damaged]
    fsync = await setting(client, "appendfsync")
    return [*_server(info), *_persistence(info, fsync), *_memory(info), *_writable(info), *damaged]


async def risks(client: RedisClient) -> list[Finding]:
    """Eviction, and no append-only file; nothing where the server denies INFO."""
    info = await server_info(client)
    found = [*_persistence(info, None), *_memory(info)] if info else []
    return [finding for finding in found if finding.check in RISKS and finding.level is not Level.OK]


async def damage(client: RedisClient) -> list[Finding]:
    """Queues that are set aside, or whose numbers disagree: reads no jobs."""
    await client.sync_clock()  # the store may not be open: without the offset, the command would be late
    try:
        found = [sentence.decode(errors="replace") for sentence in await client.call("compare_counts", {})]
    except (StoreFull, StoreReadOnly):  # the commands cannot be loaded now, for a reason that other findings give
        return []
    return [Finding(Level.FAIL, "damaged queue", sentence, "jobyard audit --repair") for sentence in found]


async def setting(client: RedisClient, name: str) -> str | None:
    """None where the server denies CONFIG GET, as hosted ones do."""
    try:
        answer: list[Any] = await client.execute("CONFIG", "GET", name)
    except StoreError as error:
        if is_forbidden(error):
            return None
        raise
    return answer[1].decode() if len(answer) == 2 else None


def _server(info: dict[str, str]) -> Iterator[Finding]:
    version = info.get("redis_version", "?")
    yield Finding(Level.OK, "server", f"Redis {version}, up {int(info.get('uptime_in_seconds', 0)):,} s")
    if info.get("loading") == "1":
        yield Finding(Level.FAIL, "loading", "the server is still loading its data", "wait until it has finished")


def _persistence(info: dict[str, str], fsync: str | None) -> Iterator[Finding]:
    if info.get("aof_enabled") != "1":
        saves = info.get("rdb_last_save_time", "0") != "0" and info.get("rdb_saves", "0") != "0"
        lost = "everything since the last snapshot" if saves else "everything"
        remedy = "set appendonly yes and appendfsync everysec"
        yield Finding(Level.WARN, "persistence", f"no append-only file: a restart may lose {lost}", remedy)
    else:
        says = {
            "always": "append-only file, synced with every command",
            "no": "append-only file, synced by the operating system: a power failure may lose about 30 seconds",
        }.get(fsync or "", "append-only file: a power failure may lose about a second, a crash of Redis nothing")
        yield Finding(Level.WARN if fsync == "no" else Level.OK, "persistence", says)
        if info.get("aof_last_write_status", "ok") != "ok":
            remedy = "free disk space on the server; see its log"
            yield Finding(Level.FAIL, "append-only file", "its last write failed", remedy)
        if info.get("aof_last_bgrewrite_status", "ok") != "ok":
            yield Finding(Level.WARN, "append-only file", "its last rewrite failed", "see the log of the server")
    if info.get("rdb_last_bgsave_status", "ok") != "ok":
        yield Finding(Level.FAIL, "snapshot", "the last snapshot failed", "free disk space on the server; see its log")


def _memory(info: dict[str, str]) -> Iterator[Finding]:
    used, limit = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    policy = info.get("maxmemory_policy", "noeviction")
    if limit and policy != "noeviction":
        says = f"maxmemory-policy is {policy}: when memory is full, Redis deletes jobs"
        yield Finding(Level.FAIL, "eviction", says, "set maxmemory-policy noeviction")
    if not limit:
        yield Finding(Level.OK, "memory", f"{used // MEBIBYTE:,} MiB used, no maxmemory")
        return
    says = f"{used // MEBIBYTE:,} of {limit // MEBIBYTE:,} MiB used"
    remedy = "raise maxmemory, or lower keep_completed and keep_failed"
    share = used / limit
    level = Level.FAIL if share >= FAIL_SHARE else Level.WARN if share >= WARN_SHARE else Level.OK
    yield Finding(level, "memory", says, "" if level is Level.OK else remedy)


def _writable(info: dict[str, str]) -> Iterator[Finding]:
    if info.get("role", "master") != "master":
        yield Finding(Level.FAIL, "role", "the server is a read-only replica", "use the address of its master")
