"""What an operator should know about the Redis below: reachable, writable, safe, with room to go on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jobyard.errors import NewerSchema, StoreError, StoreUnavailable
from jobyard.ports.store import Finding, Level, Migration
from jobyard.stores.redis.server import Server
from jobyard.stores.redis.trouble import is_forbidden

# 1: the first. 2: schedules, and logs that are trimmed.
SCHEMA = 2
OLDEST = (7, 0)
MEBIBYTE = 1 << 20
LOW, EMPTY = 0.8, 0.95


async def information(server: Server) -> dict[str, str]:
    """Empty where the server keeps it to itself."""
    try:
        answer: bytes = await server.ask("INFO")
    except StoreError as error:
        if is_forbidden(error):
            return {}
        raise
    lines = (line.partition(":") for line in answer.decode(errors="replace").splitlines())
    return {key: value for key, mark, value in lines if mark}


async def prepare(server: Server) -> None:
    """Refuse what cannot work, and leave the mark of this schema."""
    await server.read_clock()
    about = await information(server)
    require_version(about, server.address.shown)
    key = f"{server.prefix}:schema"
    present = await server.ask("GET", key)
    if present is None:
        # Several processes may do this at once: the first one wins and all write the same.
        await server.ask("SET", key, SCHEMA, "NX")
    elif int(present) < SCHEMA:
        # What an older layout holds is read as it is.
        await server.ask("SET", key, SCHEMA, "XX")
    elif int(present) > SCHEMA:
        raise NewerSchema(
            f"{server.address.shown} was written by a newer jobyard (schema {int(present)}, this one knows {SCHEMA}). "
            "Update jobyard, or use another prefix."
        )


def require_version(about: dict[str, str], shown: str) -> None:
    if about.get("redis_mode") == "cluster":
        raise StoreUnavailable(f"The Redis at {shown} is a cluster; this store needs a single server.")
    version = about.get("redis_version")
    if version and tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
        raise StoreUnavailable(f"The Redis at {shown} has version {version}; jobyard needs 7.0 or newer.")


async def migrations(server: Server) -> list[Migration]:
    key = f"{server.prefix}:schema"
    present = int(await server.ask("GET", key) or 0)
    return [
        Migration(1, "first", f"SET {key} 1 NX", present >= 1),
        Migration(2, "schedules", f"SET {key} 2 XX", present >= 2),
    ]


async def findings(server: Server) -> list[Finding]:
    about = await information(server)
    if not about:
        says = "it does not let us ask about memory, persistence and its role"
        return [Finding(Level.WARN, "server", says, "allow this user INFO and CONFIG GET, or look there yourself")]
    fsync = await setting(server, "appendfsync")
    return [*_server(about), *_persistence(about, fsync), *_memory(about), *_writable(about)]


async def setting(server: Server, name: str) -> str | None:
    """None where the server keeps its configuration to itself, as hosted ones do."""
    try:
        answer: list[Any] = await server.ask("CONFIG", "GET", name)
    except StoreError as error:
        if is_forbidden(error):
            return None
        raise
    return answer[1].decode() if len(answer) == 2 else None


def _server(about: dict[str, str]) -> Iterator[Finding]:
    version = about.get("redis_version", "?")
    yield Finding(Level.OK, "server", f"Redis {version}, up {int(about.get('uptime_in_seconds', 0)):,} s")
    if about.get("loading") == "1":
        yield Finding(Level.FAIL, "loading", "it is still loading its data", "wait until it has")


def _persistence(about: dict[str, str], fsync: str | None) -> Iterator[Finding]:
    if about.get("aof_enabled") != "1":
        saves = about.get("rdb_last_save_time", "0") != "0" and about.get("rdb_saves", "0") != "0"
        lost = "everything since the last snapshot" if saves else "everything"
        cure = "set appendonly yes and appendfsync everysec"
        yield Finding(Level.WARN, "persistence", f"no append-only file: a restart may lose {lost}", cure)
    else:
        says = {
            "always": "append-only file, synced with every command",
            "no": "append-only file, synced when the system likes: a power failure may lose about 30 seconds",
        }.get(fsync or "", "append-only file: a power failure may lose up to about a second, a crash of Redis nothing")
        yield Finding(Level.WARN if fsync == "no" else Level.OK, "persistence", says)
        if about.get("aof_last_write_status", "ok") != "ok":
            cure = "free some space on its disk; see its log"
            yield Finding(Level.FAIL, "append-only file", "the last write to it failed", cure)
        if about.get("aof_last_bgrewrite_status", "ok") != "ok":
            yield Finding(Level.WARN, "append-only file", "the last rewrite of it failed", "see its log")
    if about.get("rdb_last_bgsave_status", "ok") != "ok":
        yield Finding(Level.FAIL, "snapshot", "the last snapshot failed", "free some space on its disk; see its log")


def _memory(about: dict[str, str]) -> Iterator[Finding]:
    used, most = int(about.get("used_memory", 0)), int(about.get("maxmemory", 0))
    policy = about.get("maxmemory_policy", "noeviction")
    if most and policy != "noeviction":
        says = f"maxmemory-policy is {policy}: when memory is full it throws jobs away"
        yield Finding(Level.FAIL, "eviction", says, "set maxmemory-policy noeviction")
    if not most:
        yield Finding(Level.OK, "memory", f"{used // MEBIBYTE:,} MiB used, no maxmemory")
        return
    says = f"{used // MEBIBYTE:,} of {most // MEBIBYTE:,} MiB used"
    cure = "raise maxmemory, or lower keep_completed and keep_failed"
    share = used / most
    level = Level.FAIL if share >= EMPTY else Level.WARN if share >= LOW else Level.OK
    yield Finding(level, "memory", says, "" if level is Level.OK else cure)


def _writable(about: dict[str, str]) -> Iterator[Finding]:
    if about.get("role", "master") != "master":
        yield Finding(Level.FAIL, "role", "it is a replica and cannot be written", "use the address of its master")
