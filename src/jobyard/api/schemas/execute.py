"""Programs that are handed in to be run, and how they went: the shapes that travel over HTTP."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from jobyard.api.schemas.jobs import Name, RequestSchema
from jobyard.sandbox.protocol import Limits, RunVerdict, Tier

USUAL = Limits()


class LimitsRequest(RequestSchema, frozen=True, kw_only=True):
    """What the program may use; the operator's bounds may be lower than what somebody asks for."""

    time_seconds: Annotated[float, Meta(gt=0)] = USUAL.time_seconds
    cpu_seconds: Annotated[float, Meta(gt=0)] | None = None  # not given: as much as the time allows
    memory_mb: Annotated[int, Meta(ge=1)] = USUAL.memory_mb
    processes: Annotated[int, Meta(ge=1)] = USUAL.processes
    files_open: Annotated[int, Meta(ge=1)] = USUAL.files_open
    output_bytes: Annotated[int, Meta(ge=1)] = USUAL.output_bytes  # of stdout, and again of stderr
    disk_mb: Annotated[int, Meta(ge=1)] = USUAL.disk_mb
    disk_files: Annotated[int, Meta(ge=1)] = USUAL.disk_files


class FileRequest(RequestSchema, frozen=True, kw_only=True):
    """A file in the program's folder, as text or as bytes."""

    name: Annotated[str, Meta(min_length=1)]  # relative
    content: str = ""
    content_base64: bytes | None = None


class ProgramRequest(RequestSchema, frozen=True, kw_only=True):
    """A program, and what it may use."""

    language: Name
    source_code: Annotated[str, Meta(min_length=1)]
    args: tuple[str, ...] = ()
    files: tuple[FileRequest, ...] = ()
    collect: tuple[str, ...] = ()  # names of files that the program makes, to be brought back
    limits: LimitsRequest = LimitsRequest()


class ExecuteRequest(ProgramRequest, frozen=True, kw_only=True):
    input: str = ""  # what the program reads from its standard input
    input_base64: bytes | None = None  # the same as bytes


class ExecuteBatchRequest(ProgramRequest, frozen=True, kw_only=True):
    """One program, run with each input, one after the other."""

    inputs: Annotated[tuple[str, ...], Meta(min_length=1)]


class TruncatedView(msgspec.Struct, frozen=True):
    stdout: bool
    stderr: bool


class CompileView(msgspec.Struct, frozen=True, kw_only=True):
    exit_code: int
    stdout: str
    stderr: str
    time_ms: float


class FileView(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was brought back; `content_base64` where it is no text."""

    name: str
    size: int
    content: str
    content_base64: str | UnsetType = UNSET


class RunView(msgspec.Struct, frozen=True, kw_only=True):
    """How the program went. `stdout_base64` and `stderr_base64` hold what was no text, exactly."""

    stdout: str
    stderr: str
    exit_code: int  # 128 and the signal, when one ended it
    execution_time_ms: float
    signal: int | None
    verdict: RunVerdict
    cpu_time_ms: float | None
    memory_peak_bytes: int | None
    memory_source: str
    setup_ms: float
    truncated: TruncatedView
    tier: Tier
    stdout_base64: str | UnsetType = UNSET
    stderr_base64: str | UnsetType = UNSET
    compile: CompileView | UnsetType = UNSET
    files: tuple[FileView, ...] | UnsetType = UNSET
    notes: tuple[str, ...] | UnsetType = UNSET
    index: int | UnsetType = UNSET  # of the input, in a batch


class BatchView(msgspec.Struct, frozen=True):
    results: tuple[RunView, ...]  # in the order of the inputs


class ExecutionView(msgspec.Struct, frozen=True, kw_only=True):
    """COMPLETED: the program was run, whatever came of it. FAILED: it was not, and `reason` says why."""

    job_id: str
    status: Literal["PENDING", "RUNNING", "COMPLETED", "FAILED"]
    # Of a single run it has the fields of RunView, of a batch those of BatchView.
    result: dict[str, Any] | UnsetType = UNSET
    reason: str | UnsetType = UNSET


class LanguageView(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    version: str
    compiled: bool
    tier: Tier  # the best that a live worker has for it


class LanguageList(msgspec.Struct, frozen=True, kw_only=True):
    """What passed its self-test on some live worker; `reason` says why there is nothing."""

    items: tuple[LanguageView, ...]
    reason: str | UnsetType = UNSET
