"""A job as the payload of a workflow holds it, to be started later as a child."""

from __future__ import annotations

from typing import Any

import msgspec

from jobyard.domain.instant import Instant
from jobyard.domain.job import NewJob, Unique
from jobyard.domain.retry import DEFAULT_BACKOFF, Backoff
from jobyard.errors import BadOption
from jobyard.executors.python.prepared_job import PreparedJob


class JobSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    kind: str
    payload: msgspec.Raw = msgspec.Raw(b"{}")
    parameter: str | None = None  # receives what comes before it: the previous result, the results, or the counts
    queue: str = "default"
    group: str | None = None
    priority: int = 0
    max_attempts: int = 3
    timeout_seconds: float | None = None
    backoff: Backoff = DEFAULT_BACKOFF
    delay_seconds: float = 0.0
    run_at: Instant | None = None
    unique: Unique | None = None
    tags: tuple[str, ...] = ()
    is_workflow: bool = False

    @classmethod
    def of(cls, job: NewJob, parameter: str | None = None) -> JobSpec:
        if job.private_payload is not None:
            raise BadOption("A job with a private payload cannot be part of a chain, group, chord or batch callback.")
        names = [name for name in cls.__struct_fields__ if name not in ("payload", "parameter")]
        fields = {name: getattr(job, name) for name in names}
        return cls(payload=msgspec.Raw(job.payload), parameter=parameter, **fields)

    def prepare(self, value: Any = None) -> PreparedJob[Any]:
        """The job, with the value for its parameter; its id is that of the child."""
        payload = bytes(self.payload)
        if self.parameter is not None:
            payload = msgspec.json.encode({self.parameter: value})
        new_job = NewJob(
            id="",
            kind=self.kind,
            payload=payload,
            queue=self.queue,
            group=self.group,
            priority=self.priority,
            max_attempts=self.max_attempts,
            timeout_seconds=self.timeout_seconds,
            backoff=self.backoff,
            delay_seconds=self.delay_seconds,
            run_at=self.run_at,
            unique=self.unique,
            tags=self.tags,
            is_workflow=self.is_workflow,
        )
        return PreparedJob(UNTYPED, new_job, None)


class UntypedResult:
    """Decodes the result of a job whose handler is not at hand."""

    name = "job"

    def decode_result(self, result: bytes) -> Any:
        return msgspec.json.decode(result)


UNTYPED = UntypedResult()
