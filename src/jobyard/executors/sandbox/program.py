"""Private payload of a job that runs a program: never shown, erased when the job completes."""

from __future__ import annotations

from typing import Final

import msgspec

from jobyard.errors import BadInput
from jobyard.sandbox.protocol import File, Limits, RunRequest

KIND: Final = "execute"
QUEUE: Final = "code"
# How long the results of the queue are kept unless it is configured otherwise.
KEEP_SECONDS: Final = 3600.0
# Added to the program's own limits for compiling, a slow machine or a daemon restart: without it the job would time
# out before the sandbox could report a verdict.
SLACK_SECONDS: Final = 60.0


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

    def run_request(self, stdin: bytes, *, stream: bool = False, scope: str = "") -> RunRequest:
        """The request for one input; the client sets its id."""
        return RunRequest(
            id=0,
            language=self.language,
            source=self.source.encode(),
            stdin=stdin,
            args=self.args,
            files=self.files,
            limits=self.limits,
            stream=stream,
            collect=self.collect,
            scope=scope,
        )

    @property
    def timeout_seconds(self) -> float:
        """The job's timeout: above the program's own limits, so that those end it first."""
        return self.limits.time_seconds * len(self.inputs) + SLACK_SECONDS


_decode = msgspec.json.Decoder(Program).decode


def read(private_payload: bytes | None) -> Program:
    if private_payload is None:
        raise BadInput("Cannot run this job: it has no program. It completed before, or was not submitted to /execute.")
    try:
        return _decode(private_payload)
    except (msgspec.DecodeError, RecursionError):
        # The payload is private, and a decoding error may quote it.
        raise BadInput("Cannot run this job: its payload is not a valid program.") from None
