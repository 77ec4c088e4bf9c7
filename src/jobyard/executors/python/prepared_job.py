"""A job that is checked but not yet enqueued."""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar

from jobyard.domain.job import NewJob

R_co = TypeVar("R_co", covariant=True)


class ResultDecoder(Protocol):
    """What a prepared job needs of its handler."""

    @property
    def name(self) -> str: ...

    def decode_result(self, result: bytes) -> Any: ...


class PreparedJob(Generic[R_co]):
    """A job that is checked but not yet enqueued, for `yard.enqueue_many` and the child jobs of workflows.

    Celery calls it a signature, Dramatiq a message.
    """

    __slots__ = ("handler", "new_job", "transaction")

    def __init__(self, handler: ResultDecoder, new_job: NewJob, transaction: Any) -> None:
        self.handler = handler
        self.new_job = new_job
        self.transaction = transaction
