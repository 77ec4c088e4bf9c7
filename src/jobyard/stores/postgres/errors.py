"""What PostgreSQL, the driver or the network complains about, in plain words and never with a password."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg

from jobyard.errors import (
    BadInput,
    JobyardError,
    NotPossible,
    QueueFull,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)

ABORTED = "25P02"
QUEUE_FULL, KNOWN_ID, NOT_HELD = "JYF01", "JYB01", "JYQ01"
# Somebody else was faster or in the way: the same once more is right.
TRY_AGAIN = {"40001", "40P01", "55P03"}
FULL = {"53100", "53200"}
READ_ONLY = {"25006"}
DENIED = {"28000", "28P01", "42501"}
NO_DATABASE, CROWDED = "3D000", "53300"
# A prepared statement that another session knows: the sessions behind a pooler take turns.
MIXED_UP = {"26000", "42P05", "08P01"}
AWAY = {"57P01", "57P02", "57P03", "53300", "57014", "53400", "08000", "08003", "08006", "08P01"}
BAD_VALUES = ("22", "23")

# The driver speaks of an internal error, too, when a connection dies in the middle of a command.
Driver = asyncpg.InterfaceError | asyncpg.InternalClientError
Trouble = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    asyncio.TimeoutError,
    UnicodeError,
    EOFError,
)


def state_of(error: BaseException) -> str:
    return getattr(error, "sqlstate", None) or ""


def translate(error: BaseException, where: str) -> JobyardError:
    """Our own error for it: what happened, why, what to do."""
    # The first line says it; what follows are hints to programmers.
    state, text = state_of(error), str(error).partition("\n")[0].rstrip(".")
    if state == QUEUE_FULL:
        return QueueFull(text)
    if state == KNOWN_ID:
        return BadInput(text)
    if state == "23505" and "jobyard_job_id" in text:
        return BadInput("There already is a job with one of these ids, or an id was handed in twice; ids must be new.")
    if isinstance(error, UnicodeError | asyncpg.exceptions.DataError) or state[:2] in BAD_VALUES:
        return BadInput(f"A value cannot be stored by PostgreSQL: {text}")
    if state in FULL:
        return StoreFull(f"{where} has no room left ({text}); nothing was half-written. Free some space and try again.")
    if state == ABORTED:
        return NotPossible(f"The transaction has failed already ({text}): roll it back and begin again.")
    if state in READ_ONLY:
        return StoreReadOnly(f"{where} takes no writes ({text}): a standby, or default_transaction_read_only.")
    return _unavailable(error, state, text, where)


def _unavailable(error: BaseException, state: str, text: str, where: str) -> StoreError:
    if state in TRY_AGAIN:
        return StoreUnavailable(f"{where} is held up by another transaction ({text}); try again.")
    if state in MIXED_UP and ("prepared statement" in text or "bind message" in text):
        return StoreUnavailable(
            f"{where} is behind a pooler in transaction mode, such as PgBouncer: add pooled=true to the URL."
        )
    if state == NO_DATABASE:
        return StoreUnavailable(f"{where}: {text}. Create it, or correct the name at the end of the URL.")
    if state in DENIED:
        return StoreUnavailable(f"{where} refused us: {text}. Check the user, the password and the grants.")
    if state == CROWDED:
        return StoreUnavailable(
            f"{where} has no connection left for us: {text}. Lower the pool sizes, put PgBouncer in between, "
            "or raise max_connections."
        )
    if state in AWAY or state.startswith("08"):
        return StoreUnavailable(f"{where} is not available now: {text}.")
    if isinstance(error, asyncio.TimeoutError):
        return StoreUnavailable(f"{where} did not answer in time.")
    if isinstance(error, ConnectionRefusedError):
        return StoreUnavailable(f"{where} refuses connections. Is the server running, on this host and port?")
    if isinstance(error, OSError | EOFError | Driver):
        return StoreUnavailable(f"{where} cannot be reached, or was lost: {text or type(error).__name__}.")
    if state in ("42P01", "42883", "3F000"):
        return StoreError(f"{where} lacks jobyard's tables or functions ({text}). Run `jobyard migrate`.")
    return StoreError(f"{where} said: {text}")


def is_lost(error: BaseException) -> bool:
    """Whether the connection must not be used again."""
    if isinstance(error, asyncpg.PostgresError):
        return state_of(error) in AWAY - {"53300", "53400"}
    # A driver's complaint about a value, or an error of our own: the session is as it was.
    return not isinstance(error, asyncpg.exceptions.DataError | UnicodeError | JobyardError)


@contextmanager
def plain_words(where: str) -> Iterator[None]:
    try:
        yield
    except JobyardError:
        raise
    except Trouble as error:
        raise translate(error, where) from error
