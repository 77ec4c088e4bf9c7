"""Schemas of programs and their runs."""

from __future__ import annotations

import enum
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from jobyard.api.schemas.jobs import Name, RequestSchema
from jobyard.executors.sandbox.program import Comparison
from jobyard.sandbox.protocol import Limits, Tier

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


class CaseLimitsRequest(RequestSchema, frozen=True, kw_only=True):
    """Limits of one test case; those that are not given are the program's."""

    time_seconds: Annotated[float, Meta(gt=0)] | None = None
    cpu_seconds: Annotated[float, Meta(gt=0)] | None = None
    memory_mb: Annotated[int, Meta(ge=1)] | None = None
    processes: Annotated[int, Meta(ge=1)] | None = None
    files_open: Annotated[int, Meta(ge=1)] | None = None
    output_bytes: Annotated[int, Meta(ge=1)] | None = None
    disk_mb: Annotated[int, Meta(ge=1)] | None = None
    disk_files: Annotated[int, Meta(ge=1)] | None = None


class CompileRequest(RequestSchema, frozen=True, kw_only=True):
    """Options and limits of the compiler; `GET /languages` lists the options that a language allows."""

    options: tuple[str, ...] = ()
    time_seconds: Annotated[float, Meta(gt=0, le=3600)] | None = None  # default: that of the language
    memory_mb: Annotated[int, Meta(ge=4, le=1 << 20)] | None = None


class TestRequest(RequestSchema, frozen=True, kw_only=True):
    """A test case: an input, the output that is expected for it, and its points."""

    name: Annotated[str, Meta(max_length=200)] = ""  # default: its number
    input: str = ""
    input_base64: bytes | None = None
    expected_output: str | None = None  # default: any output is accepted
    points: int | float = 1
    limits: CaseLimitsRequest = CaseLimitsRequest()


class CheckerRequest(RequestSchema, frozen=True, kw_only=True):
    """A program that decides whether an output is accepted.

    Its arguments are the names of three files: input, output and expected output. Exit code 0 accepts, 1 and 2
    reject, 7 gives the part of the points in its first line, `points 0.5`.
    """

    language: Name
    source_code: Annotated[str, Meta(min_length=1)]
    limits: LimitsRequest = LimitsRequest()


class WebhookRequest(RequestSchema, frozen=True, kw_only=True):
    """Where to send the result when the program has ended, signed as Standard Webhooks describe."""

    url: Annotated[str, Meta(min_length=1, max_length=2048)]
    secret: Annotated[str, Meta(min_length=1, max_length=200)] | None = None  # whsec_…; default: that of the server


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
    compile: CompileRequest = CompileRequest()
    merge_stderr: bool = False  # stderr goes to stdout, in the order of writing
    runs: Annotated[int, Meta(ge=1)] = 1  # times that each input is run; the figures are medians
    webhook: WebhookRequest | None = None


class ExecuteRequest(ProgramRequest, frozen=True, kw_only=True):
    input: str = ""  # standard input
    input_base64: bytes | None = None  # standard input as bytes
    expected_output: str | None = None  # the verdict is then ACCEPTED or WRONG_ANSWER instead of OK
    tests: Annotated[tuple[TestRequest, ...], Meta(min_length=1)] = ()  # cases, instead of input and expected_output
    comparison: Comparison = Comparison.LINES
    tolerance: float | None = None  # with the comparison numbers only: absolute or relative; None: 0.000001
    checker: CheckerRequest | None = None
    stop_at_first_failure: bool = False
    interactive: bool = False  # POST /jobs/{job_id}/input adds to standard input while it runs


class ExecuteManyRequest(RequestSchema, frozen=True, kw_only=True):
    """Programs that have nothing to do with each other; each becomes a job of its own."""

    programs: Annotated[tuple[ExecuteRequest, ...], Meta(min_length=1)]


class InputRequest(RequestSchema, frozen=True, kw_only=True):
    """More standard input for an interactive program, as text or as base64."""

    text: str = ""
    base64: bytes | None = None
    end: bool = False  # close standard input after this


class ProgramSignalRequest(RequestSchema, frozen=True, kw_only=True):
    signal: Literal["HUP", "INT", "QUIT", "KILL", "USR1", "USR2", "TERM"]


class ExecuteBatchRequest(ProgramRequest, frozen=True, kw_only=True):
    """One program, run once per input, one after the other."""

    inputs: Annotated[tuple[str, ...], Meta(min_length=1)]


class InputView(msgspec.Struct, frozen=True, kw_only=True):
    job_id: str
    number: int  # of this piece of input, counted from 1


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


class JudgeVerdict(enum.StrEnum):
    """How a run ended, and what a judge says about its output."""

    OK = "OK"
    RUNTIME_ERROR = "RUNTIME_ERROR"
    SIGNALED = "SIGNALED"
    TIME_LIMIT = "TIME_LIMIT"
    CPU_LIMIT = "CPU_LIMIT"
    MEMORY_LIMIT = "MEMORY_LIMIT"
    OUTPUT_LIMIT = "OUTPUT_LIMIT"
    COMPILE_ERROR = "COMPILE_ERROR"
    ACCEPTED = "ACCEPTED"
    WRONG_ANSWER = "WRONG_ANSWER"
    CHECKER_ERROR = "CHECKER_ERROR"
    SKIPPED = "SKIPPED"


class MismatchView(msgspec.Struct, frozen=True, kw_only=True):
    """The first line that differs; null where there is no such line."""

    line: int
    expected: str | None
    actual: str | None


class FiguresView(msgspec.Struct, frozen=True, kw_only=True):
    execution_time_ms: float
    cpu_time_ms: float | None
    memory_peak_bytes: int | None


class RunView(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a program. `stdout_base64` and `stderr_base64` hold the exact bytes of output that is not UTF-8."""

    stdout: str
    stderr: str
    exit_code: int  # 128 + signal, if a signal ended it
    execution_time_ms: float
    signal: int | None
    verdict: JudgeVerdict
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
    index: int | UnsetType = UNSET  # of the input in a batch, or of the test case
    runs: tuple[FiguresView, ...] | UnsetType = UNSET  # with several runs; the figures above are their medians
    mismatch: MismatchView | UnsetType = UNSET
    message: str | UnsetType = UNSET  # of the checker
    name: str | UnsetType = UNSET  # of the test case
    points: int | float | UnsetType = UNSET
    max_points: int | float | UnsetType = UNSET


class BatchView(msgspec.Struct, frozen=True):
    results: tuple[RunView, ...]  # in the order of the inputs


class TestSetView(msgspec.Struct, frozen=True, kw_only=True):
    """A set of test cases; a case that was not run has only index, name, verdict and points."""

    verdict: JudgeVerdict  # ACCEPTED, or that of the first case that failed
    passed: int
    points: int | float
    max_points: int | float
    execution_time_ms: float  # of the slowest case
    memory_peak_bytes: int | None
    results: tuple[RunView, ...]
    compile: CompileView | UnsetType = UNSET


class ExecutionView(msgspec.Struct, frozen=True, kw_only=True):
    """COMPLETED: the program ran, with any exit code or verdict. FAILED: it did not run, and `reason` says why."""

    job_id: str
    status: Literal["PENDING", "RUNNING", "COMPLETED", "FAILED"]
    # The fields of RunView for a single run, of BatchView for a batch, of TestSetView for test cases.
    result: dict[str, Any] | UnsetType = UNSET
    reason: str | UnsetType = UNSET


class ExecutionList(msgspec.Struct, frozen=True, kw_only=True):
    """In the order of the programs."""

    items: tuple[ExecutionView, ...]


class LanguageView(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    version: str
    compiled: bool
    tier: Tier  # the strongest isolation that a live worker offers for it
    extensions: tuple[str, ...] = ()  # of source files
    compile_options: tuple[str, ...] = ()  # that requests may pass; a final * stands for letters, digits and _=.+-
    max_compile_seconds: float | None = None  # the most that a request may set; null: it has no compiler
    max_compile_memory_mb: int | None = None
    example: str = ""  # a program that prints a greeting


class LanguageList(msgspec.Struct, frozen=True, kw_only=True):
    """Languages that passed their self-test on a live worker; `reason` says why there are none."""

    items: tuple[LanguageView, ...]
    reason: str | UnsetType = UNSET
