"""Private payload of a job that runs a program: never shown, erased when the job completes."""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from jobyard.errors import BadInput
from jobyard.sandbox.protocol import CompileLimits, File, Limits, RunRequest

KIND: Final = "execute"
QUEUE: Final = "code"
# How long the results of the queue are kept unless it is configured otherwise.
KEEP_SECONDS: Final = 3600.0
# Added to the program's own limits for compiling, a slow machine or a daemon restart: without it the job would time
# out before the sandbox could report a verdict.
SLACK_SECONDS: Final = 60.0


class Comparison(enum.StrEnum):
    """When the output of a program equals the expected one."""

    EXACT = "exact"  # byte for byte
    LINES = "lines"  # apart from white space at the end of lines and empty lines at the end
    TOKENS = "tokens"  # the same words, separated by any white space
    NUMBERS = "numbers"  # as tokens; words that are numbers may differ by the tolerance


class TestCase(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One input of a program with the output that is expected for it."""

    name: str = ""
    stdin: bytes = b""
    expected: bytes | None = None  # None: any output is accepted, unless a checker decides
    points: int | float = 1
    limits: Limits | None = None  # None: those of the program


class Checker(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A program that decides whether an output is accepted; it runs in the sandbox, too."""

    language: str
    source: str
    limits: Limits = Limits()


class Program(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A program and the inputs to run it with, in order."""

    language: str
    source: str
    inputs: tuple[bytes, ...] = (b"",)
    is_batch: bool = False
    args: tuple[str, ...] = ()
    files: tuple[File, ...] = ()
    collect: tuple[str, ...] = ()  # names of files to return
    limits: Limits = Limits()
    tests: tuple[TestCase, ...] = ()  # instead of inputs
    expected: bytes | None = None  # output for the only input
    comparison: Comparison = Comparison.LINES
    tolerance: float = 1e-6
    checker: Checker | None = None
    stop_at_first_failure: bool = False
    runs: int = 1  # of each input
    merge_stderr: bool = False
    interactive: bool = False
    compile_options: tuple[str, ...] = ()
    compile_limits: CompileLimits = CompileLimits()

    def run_request(
        self, stdin: bytes, *, stream: bool = False, scope: str = "", limits: Limits | None = None
    ) -> RunRequest:
        """The request for one input; the client sets its id."""
        return RunRequest(
            id=0,
            language=self.language,
            source=self.source.encode(),
            stdin=stdin,
            args=self.args,
            files=self.files,
            limits=limits or self.limits,
            stream=stream,
            collect=self.collect,
            scope=scope,
            merge_stderr=self.merge_stderr,
            interactive=self.interactive,
            compile_options=self.compile_options,
            compile_limits=self.compile_limits,
        )

    @property
    def is_judged(self) -> bool:
        return bool(self.tests) or self.expected is not None or self.checker is not None

    @property
    def timeout_seconds(self) -> float:
        """The job's timeout: above the program's own limits, so that those end it first."""
        if self.tests:
            seconds = sum((case.limits or self.limits).time_seconds for case in self.tests)
        else:
            seconds = self.limits.time_seconds * len(self.inputs)
        checks = 0.0 if self.checker is None else self.checker.limits.time_seconds * (len(self.tests) or 1)
        return seconds * self.runs + checks + (self.compile_limits.time_seconds or 0.0) + SLACK_SECONDS


_decode = msgspec.json.Decoder(Program).decode


def read(private_payload: bytes | None) -> Program:
    if private_payload is None:
        raise BadInput("Cannot run this job: it has no program. It completed before, or was not submitted to /execute.")
    try:
        return _decode(private_payload)
    except (msgspec.DecodeError, RecursionError):
        # The payload is private, and a decoding error may quote it.
        raise BadInput("Cannot run this job: its payload is not a valid program.") from None
