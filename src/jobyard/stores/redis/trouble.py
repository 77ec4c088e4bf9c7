"""What the server's refusals mean, in plain words and without secrets."""

from __future__ import annotations

from hiredis import ReplyError

from jobyard.errors import StoreError, StoreFull, StoreReadOnly, StoreUnavailable

UNAVAILABLE = {
    "LOADING": "is still loading its data; try again in a moment",
    "BUSY": "is busy with a script that does not end; see SCRIPT KILL",
    "MASTERDOWN": "is a replica that has lost its master",
    "CLUSTERDOWN": "belongs to a cluster that is down",
    "NOAUTH": "wants a password: put it in the URL or the environment",
    "WRONGPASS": "does not take this user and password: check the URL, or REDIS_PASSWORD",
    "NOPERM": "does not allow this user the commands a store needs",
    "MOVED": "belongs to a cluster, which this store does not speak; see docs/redis.md",
    "CROSSSLOT": "belongs to a cluster, which this store does not speak; see docs/redis.md",
}


def is_unknown_command(error: ReplyError) -> bool:
    return str(error) == "ERR Function not found"


def is_forbidden(error: BaseException) -> bool:
    """The server keeps this to itself, as hosted ones do."""
    return str(error.__cause__).startswith(("NOPERM", "ERR unknown command"))


def is_late(error: ReplyError) -> bool:
    return "LATE " in str(error)


def plain(error: ReplyError, shown: str) -> StoreError:
    text = str(error)
    code = text.partition(" ")[0]
    if code == "OOM" or "OOM command not allowed" in text:
        return StoreFull(
            f"The Redis at {shown} has reached its maxmemory and takes nothing more; nothing was written. "
            "Raise maxmemory, or keep fewer finished jobs."
        )
    if code == "READONLY" or "READONLY" in text:
        return StoreReadOnly(f"The Redis at {shown} is a replica and cannot be written; use the address of its master.")
    if code == "MISCONF" or "MISCONF" in text:
        return StoreReadOnly(
            f"The Redis at {shown} cannot write to its disk and therefore takes nothing; see its log, free some space."
        )
    if is_late(error):
        return StoreUnavailable(f"The way to {shown} took too long; nothing was done.")
    if "invalid password" in text or "without any password" in text:
        return StoreUnavailable(f"The Redis at {shown} {UNAVAILABLE['WRONGPASS']}.")
    if "DB index is out of range" in text:
        return StoreUnavailable(f"The Redis at {shown} has no database of that number; see its setting `databases`.")
    if code in UNAVAILABLE:
        return StoreUnavailable(f"The Redis at {shown} {UNAVAILABLE[code]}.")
    return StoreError(f"The Redis at {shown} answered: {text}")
