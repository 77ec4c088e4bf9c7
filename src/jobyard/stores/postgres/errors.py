"""Translation of errors from PostgreSQL, the driver and the network into jobyard's own. Never contains a password."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import asyncpg
import msgspec

from jobyard.errors import (
    BadInput,
    JobyardError,
    NotPossible,
    QueueFull,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    duplicate_job_id,
)

# Codes that our own functions raise. DETAIL of the first two is a JSON object.
QUEUE_FULL, DUPLICATE_ID, QUEUE_NOT_LOCKED = "JYF01", "JYB01", "JYQ01"
UNIQUE_VIOLATION, LOCK_NOT_AVAILABLE, IN_FAILED_TRANSACTION = "23505", "55P03", "25P02"
# Serialization failure, deadlock, lock not available: the same transaction succeeds a moment later.
RETRYABLE = {"40001", "40P01", LOCK_NOT_AVAILABLE}
OUT_OF_SPACE = {"53100", "53200"}
READ_ONLY = {"25006"}
ACCESS_DENIED = {"28000", "28P01", "42501"}
UNKNOWN_DATABASE, TOO_MANY_CONNECTIONS = "3D000", "53300"
UNKNOWN_TABLE_OR_FUNCTION = {"42P01", "42883", "3F000"}
# A prepared statement is missing or belongs to another client: a pooler hands out sessions in turn.
PREPARED_STATEMENT_MISMATCH = {"26000", "42P05", "08P01"}
UNAVAILABLE = {"57P01", "57P02", "57P03", "53300", "57014", "53400", "08000", "08003", "08006", "08P01"}
INVALID_VALUE_CLASSES = ("22", "23")

DriverError = asyncpg.InterfaceError | asyncpg.InternalClientError
# asyncpg raises InternalClientError also when a connection breaks in the middle of a command.
DRIVER_ERRORS = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    asyncio.TimeoutError,
    UnicodeError,
    EOFError,
)


def state_of(error: BaseException | None) -> str:
    """The SQLSTATE of a server error; empty for others."""
    return getattr(error, "sqlstate", None) or ""


def translate(error: BaseException, url: str) -> JobyardError:
    # Later lines of a server message are hints to programmers.
    state, text = state_of(error), str(error).partition("\n")[0].rstrip(".")
    if state == QUEUE_FULL:
        detail = _detail(error)
        return QueueFull.over(detail["limit"], detail["queue"], detail["group"])
    if state == DUPLICATE_ID:
        return duplicate_job_id(_detail(error)["job_id"])
    if state == UNIQUE_VIOLATION and _diagnostic(error, "constraint_name", "constraint_name") == "jobyard_job_id":
        # A concurrent insert, or twice in one call: the server does not say which of the ids.
        return BadInput("Cannot insert: a job with one of these ids exists. Give each job an id of its own.")
    if isinstance(error, UnicodeError | asyncpg.exceptions.DataError) or state[:2] in INVALID_VALUE_CLASSES:
        return BadInput(f"PostgreSQL cannot store a value: {text}.")
    if state in OUT_OF_SPACE:
        return StoreFull(f"{url} is out of space: {text}. Nothing was written. Free some space and retry.")
    if state == IN_FAILED_TRANSACTION:
        return NotPossible(f"The transaction has already failed: {text}. Roll it back and start a new one.")
    if state in READ_ONLY:
        return StoreReadOnly(
            f"{url} is read-only: {text}. Use the primary server, or turn off default_transaction_read_only."
        )
    return _unavailable(error, state, text, url)


def _detail(error: BaseException) -> Any:
    return msgspec.json.decode(_diagnostic(error, "detail", "message_detail") or "")


def _diagnostic(error: BaseException, name: str, psycopg_name: str) -> Any:
    """A field of the server's message, as asyncpg or psycopg has it."""
    return getattr(error, name, None) or getattr(getattr(error, "diag", None), psycopg_name, None)


def _unavailable(error: BaseException, state: str, text: str, url: str) -> StoreError:
    if state in RETRYABLE:
        return StoreUnavailable(f"{url} is blocked by another transaction: {text}. Retry later.")
    if state in PREPARED_STATEMENT_MISMATCH and ("prepared statement" in text or "bind message" in text):
        return StoreUnavailable(
            f"{url} is behind a pooler in transaction mode, such as PgBouncer. Add pooled=true to the URL."
        )
    if state == UNKNOWN_DATABASE:
        return StoreUnavailable(f"Cannot open {url}: {text}. Create it, or correct the name at the end of the URL.")
    if state in ACCESS_DENIED:
        return StoreUnavailable(f"{url} denied access: {text}. Check the user, the password and the grants.")
    if state == TOO_MANY_CONNECTIONS:
        return StoreUnavailable(
            f"{url} has no free connection: {text}. Lower the pool sizes, use PgBouncer, or raise max_connections."
        )
    if state in UNAVAILABLE or state.startswith("08"):
        return StoreUnavailable(f"{url} is not available: {text}.")
    if isinstance(error, asyncio.TimeoutError):
        return StoreUnavailable(f"{url} did not respond in time.")
    if isinstance(error, ConnectionRefusedError):
        return StoreUnavailable(f"Cannot connect to {url}: connection refused. Check the URL and the server.")
    if isinstance(error, OSError | EOFError | DriverError):
        return StoreUnavailable(f"Lost or failed connection to {url}: {text or type(error).__name__}.")
    if state in UNKNOWN_TABLE_OR_FUNCTION:
        return StoreError(f"{url} lacks jobyard's tables or functions: {text}. Run `jobyard migrate`.")
    return StoreError(f"{url} reported: {text}.")


def breaks_connection(error: BaseException) -> bool:
    if isinstance(error, asyncpg.PostgresError):
        return state_of(error) in UNAVAILABLE - {"53300", "53400"}
    # The driver rejected a value, or the error is jobyard's own: nothing was sent.
    return not isinstance(error, asyncpg.exceptions.DataError | UnicodeError | JobyardError)


@contextmanager
def translated(url: str) -> Iterator[None]:
    try:
        yield
    except JobyardError:
        raise
    except DRIVER_ERRORS as error:
        raise translate(error, url) from error
    except Exception as error:
        if type(error).__module__.partition(".")[0] != "psycopg":  # the driver of a caller's transaction
            raise
        raise translate(error, url) from error
