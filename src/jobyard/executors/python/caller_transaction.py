"""The driver's connection in what frameworks call a transaction: Django's connection, SQLAlchemy's session."""

from __future__ import annotations

from typing import Any

from jobyard.errors import NotPossible


def driver_connection(transaction: Any) -> Any:
    """Call it in the caller's thread: Django's `connection` is another one in each thread.

    All are recognised by attributes, because none of these packages need be installed. What a store knows itself, as
    SQLAlchemy's asynchronous sessions, is returned as it is.
    """
    if hasattr(transaction, "in_atomic_block") and hasattr(transaction, "vendor"):
        if not transaction.in_atomic_block:
            raise NotPossible("Cannot enqueue in this connection: no transaction is open. Use transaction.atomic().")
        return transaction.connection
    is_async = hasattr(transaction, "sync_session") or hasattr(transaction, "sync_connection")
    if hasattr(transaction, "get_bind") and not is_async:
        transaction.flush()  # what was added to the session is written in this transaction before the job
        transaction = transaction.connection()
    if hasattr(transaction, "exec_driver_sql") and not is_async:
        if transaction.dialect.name == "sqlite" and not transaction.connection.driver_connection.in_transaction:
            transaction.exec_driver_sql("BEGIN IMMEDIATE")  # the driver itself begins only with a change
        return transaction.connection.driver_connection
    return transaction
