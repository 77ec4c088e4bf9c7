"""Error replies of the server, translated to the errors of the port; credentials never appear in a message."""

from __future__ import annotations

from hiredis import ReplyError

from jobyard.errors import StoreError, StoreFull, StoreReadOnly, StoreUnavailable
from jobyard.stores.redis.codec import decode_queue

UNAVAILABLE = {
    "LOADING": "it is still loading its data. Try again in a moment",
    "BUSY": "a script does not end. See SCRIPT KILL",
    "MASTERDOWN": "it is a replica that lost its master",
    "CLUSTERDOWN": "its cluster is down",
    "NOREPLICAS": "fewer replicas are connected than min-replicas-to-write asks for. Nothing was written",
    "NOAUTH": "it requires a password. Set it in the URL or in REDIS_PASSWORD",
    "WRONGPASS": "user or password is wrong. Check the URL or REDIS_PASSWORD",
    "NOPERM": "this user lacks permission for commands that the store needs. See docs/redis.md",
    "MOVED": "it belongs to a cluster, which this store does not support. See docs/redis.md",
    "CROSSSLOT": "it belongs to a cluster, which this store does not support. See docs/redis.md",
}


class ReplyLost(StoreUnavailable):
    """The connection closed before the reply arrived: the command may or may not have been executed."""


def set_aside(queue: bytes, reason: bytes) -> str:
    """What a queue whose stored data contradicts itself is reported with.

    >>> set_aside(b"mail", b"job 7 has no record")
    'queue mail is set aside, because its stored data is damaged: job 7 has no record. Run: jobyard audit --repair'
    """
    name, why = decode_queue(queue), reason.decode(errors="replace")
    return f"queue {name} is set aside, because its stored data is damaged: {why}. Run: jobyard audit --repair"


def is_function_missing(error: ReplyError) -> bool:
    return str(error) == "ERR Function not found"


def is_forbidden(error: BaseException) -> bool:
    """Whether the server denies the command, as hosted ones do with INFO and CONFIG."""
    return str(error.__cause__).startswith(("NOPERM", "ERR unknown command"))


def is_late(error: ReplyError) -> bool:
    """Whether the command arrived after its deadline and was not executed."""
    return "LATE " in str(error)


def store_error(error: ReplyError, url: str) -> StoreError:
    text = str(error)
    code = text.partition(" ")[0]
    if code == "OOM" or "OOM command not allowed" in text:
        return StoreFull(
            f"Cannot write to {url}: Redis reached its maxmemory. Nothing was written. "
            "Raise maxmemory, or keep fewer finished jobs."
        )
    if code == "READONLY" or "READONLY" in text:
        return StoreReadOnly(f"Cannot write to {url}: this Redis is a replica. Use the address of its master.")
    if code == "MISCONF" or "MISCONF" in text:
        return StoreReadOnly(
            f"Cannot write to {url}: Redis cannot persist to its disk. See its log, and free disk space."
        )
    if is_late(error):
        return StoreUnavailable(f"Cannot reach {url} in time: the command arrived too late and was not executed.")
    if "invalid password" in text or "without any password" in text:
        code = "WRONGPASS"
    if "DB index is out of range" in text:
        return StoreUnavailable(
            f"Cannot use {url}: the server has no database with this number. See its setting `databases`."
        )
    if code in UNAVAILABLE:
        return StoreUnavailable(f"Cannot use the Redis at {url}: {UNAVAILABLE[code]}.")
    return StoreError(f"The Redis at {url} responded with an error: {text}")
