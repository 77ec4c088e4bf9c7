"""What a job that runs a program carries: its private payload, never shown, erased when the job ends well."""

from __future__ import annotations

from typing import Final

import msgspec

from jobyard.errors import BadInput
from jobyard.sandbox.protocol import File, Limits, RunRequest

KIND: Final = "execute"
QUEUE: Final = "code"
# Results of code runs can be fetched for at least so long.
KEEP_SECONDS: Final = 3600.0
# Beyond the program's own limits: compiling, a slow machine, a daemon that starts anew.
SLACK_SECONDS: Final = 60.0


class Program(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One source, and the inputs that it is run with, one after the other."""

    language: str
    source: str
    inputs: tuple[bytes, ...] = (b"",)
    is_batch: bool = False
    args: tuple[str, ...] = ()
    files: tuple[File, ...] = ()
    collect: tuple[str, ...] = ()  # files to bring back
    limits: Limits = Limits()

    def run(self, stdin: bytes, *, stream: bool = False) -> RunRequest:
        """As the daemon is told; the client gives it its number."""
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
        )

    @property
    def timeout_seconds(self) -> float:
        """The job's own: always above what the program may take, so that it is the program's limit that ends it."""
        return self.limits.time_seconds * len(self.inputs) + SLACK_SECONDS


_decode = msgspec.json.Decoder(Program).decode


def read(private_payload: bytes | None) -> Program:
    if private_payload is None:
        raise BadInput("There is no program in this job: it ended well before, or was handed in another way.")
    try:
        return _decode(private_payload)
    except (msgspec.DecodeError, RecursionError):
        # What stands in it is private, and so is what is wrong with it.
        raise BadInput("The program of this job cannot be read.") from None
