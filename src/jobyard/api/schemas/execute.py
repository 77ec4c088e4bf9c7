"""Schemas of programs and their runs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from jobyard.api.schemas.jobs import Name, RequestSchema
from jobyard.sandbox.protocol import Limits, RunVerdict, Tier

DEFAULTS = Limits()


class LimitsRequest(RequestSchema, frozen=True, kw_only=True):
    """Limits of a run. A request beyond the bounds of the server is rejected."""

    time_seconds: Annotated[float, Meta(gt=0)] = DEFAULTS.time_seconds
    cpu_seconds: Annotated[float, Meta(gt=0)] | None = None  # default: as long as time_seconds
    memory_mb: Annotated[int, Meta(ge=1)] = DEFAULTS.memory_mb
    processes: Annotated[int, Meta(ge=1)] = DEFAULTS.processes
    files_open: Annotated[int, Meta(ge=1)] = DEFAULTS.files_open
    output_bytes: Annotated[int, Meta(ge=1)] = DEFAULTS.output_bytes  # of stdout and stderr each
    disk_mb: Annotated[int, Meta(ge=1)] = DEFAULTS.disk_mb
    disk_files: Annotated[int, Meta(ge=1)] = DEFAULTS.disk_files


class FileRequest(RequestSchema, frozen=True, kw_only=True):
    """A file in the working folder of the program, as text or as base64."""

    name: Annotated[str, Meta(min_length=1)]  # relative
    content: str = ""
    content_base64: bytes | None = None


class ProgramRequest(RequestSchema, frozen=True, kw_only=True):
    """A program and its limits."""

    language: Name
    source_code: Annotated[str, Meta(min_length=1)]
    args: tuple[str, ...] = ()
    files: tuple[FileRequest, ...] = ()
    collect: tuple[str, ...] = ()  # names of files that the program writes, to be returned
    limits: LimitsRequest = LimitsRequest()


class ExecuteRequest(ProgramRequest, frozen=True, kw_only=True):
    input: str = ""  # standard input
    input_base64: bytes | None = None  # standard input as bytes


class ExecuteBatchRequest(ProgramRequest, frozen=True, kw_only=True):
    """One program, run once per input, one after the other."""

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
    """A collected file; `content_base64` if it is not UTF-8 text."""

    name: str
    size: int
    content: str
    content_base64: str | UnsetType = UNSET


class RunView(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a program. `stdout_base64` and `stderr_base64` hold the exact bytes of output that is not UTF-8."""

    stdout: str
    stderr: str
    exit_code: int  # 128 + signal, if a signal ended it
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
    index: int | UnsetType = UNSET  # of the input in a batch


class BatchView(msgspec.Struct, frozen=True):
    results: tuple[RunView, ...]  # in the order of the inputs


class ExecutionView(msgspec.Struct, frozen=True, kw_only=True):
    """COMPLETED: the program ran, with any exit code or verdict. FAILED: it did not run, and `reason` says why."""

    job_id: str
    status: Literal["PENDING", "RUNNING", "COMPLETED", "FAILED"]
    # The fields of RunView for a single run, of BatchView for a batch.
    result: dict[str, Any] | UnsetType = UNSET
    reason: str | UnsetType = UNSET


class LanguageView(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    version: str
    compiled: bool
    tier: Tier  # the strongest isolation that a live worker offers for it


class LanguageList(msgspec.Struct, frozen=True, kw_only=True):
    """Languages that passed their self-test on a live worker; `reason` says why there are none."""

    items: tuple[LanguageView, ...]
    reason: str | UnsetType = UNSET
