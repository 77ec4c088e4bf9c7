"""Executor for jobs of kind `execute`: runs programs through the sandbox daemon."""

from __future__ import annotations

from typing import Any

import msgspec

from jobyard.domain.outcome import Done, Failed, Outcome, Snooze
from jobyard.errors import BadInput
from jobyard.executors.sandbox.bounds import Bounds, check
from jobyard.executors.sandbox.client import SandboxClient, SandboxFault
from jobyard.executors.sandbox.live_output import LiveOutput
from jobyard.executors.sandbox.program import Program, read
from jobyard.executors.sandbox.result import as_json, run_result
from jobyard.ports.executor import Attempt
from jobyard.sandbox.protocol import Fault, RunFinished, RunVerdict

# Delay before a platform fault is retried; shorter for faults that the next attempt may not meet.
RETRY_SECONDS = 5.0
RETRY_SOON_SECONDS = 0.5
SOON = (Fault.SUPERVISOR_LOST, Fault.ZYGOTE_LOST, Fault.SPAWN_FAILED, Fault.CANCELLED)
# So that a waiting program does not bounce between workers without a sandbox.
UNAVAILABLE_SECONDS = 10.0
# Output of a whole batch; the rest is left out with a note, so that a result stays small enough to store.
MAX_BATCH_OUTPUT_BYTES = 4 << 20
LEFT_OUT = f"output left out: the batch exceeds {MAX_BATCH_OUTPUT_BYTES:,} bytes in total"


class SandboxExecutor:
    """`live` publishes output while a program runs; without it, output is in the result only."""

    def __init__(self, client: SandboxClient, bounds: Bounds | None = None, live: LiveOutput | None = None) -> None:
        self._client = client
        self._bounds = bounds or Bounds()
        self._live = live

    async def perform(self, attempt: Attempt) -> Outcome:
        try:
            program = read(attempt.lease.private_payload)
            check(program, self._bounds)
        except BadInput as error:
            return Failed(message=str(error), type="BadInput", retry=False)
        try:
            number = 0 if self._live is None else self._live.begin()
            if program.is_batch:
                return Done(as_json({"results": await self._batch(attempt, program, number)}))
            return Done(as_json(run_result(await self._run(attempt, program, number, 0))))
        except SandboxFault as refused:
            return failed(refused)

    async def _run(self, attempt: Attempt, program: Program, number: int, index: int) -> RunFinished:
        stdin, most = program.inputs[index], self._bounds.max_file_bytes
        request = program.run_request(stdin, stream=self._live is not None, scope=attempt.lease.group or "")
        if self._live is None:
            return within(await self._client.run(request), most)
        buffer = self._live.open(attempt.lease.job_id, number, index, program.timeout_seconds)
        try:
            return within(await self._client.run(request, buffer.feed), most)
        finally:
            self._live.close(buffer)

    async def _batch(self, attempt: Attempt, program: Program, number: int) -> list[dict[str, Any]]:
        """Run the inputs in order. A compile error ends the batch: every input would fail the same way."""
        results: list[dict[str, Any]] = []
        room = MAX_BATCH_OUTPUT_BYTES
        for index in range(len(program.inputs)):
            finished = await self._run(attempt, program, number, index)
            if finished.verdict is RunVerdict.COMPILE_ERROR:
                same = run_result(finished)
                return [same | {"index": each} for each in range(len(program.inputs))]
            room -= len(finished.stdout) + len(finished.stderr) + sum(len(file.data) for file in finished.files)
            results.append(run_result(finished if room >= 0 else without_output(finished)) | {"index": index})
        return results


def within(finished: RunFinished, most: int) -> RunFinished:
    """Keep the collected files that fit into a result; note the others."""
    room, files, notes = most, [], list(finished.notes)
    for file in finished.files:
        if len(file.data) <= room:
            room -= len(file.data)
            files.append(file)
        else:
            notes.append(
                f"{file.name}: left out, {len(file.data):,} bytes; at most {most:,} bytes are returned in total"
            )
    if len(files) == len(finished.files):
        return finished
    return msgspec.structs.replace(finished, files=tuple(files), notes=tuple(notes))


def without_output(finished: RunFinished) -> RunFinished:
    left_out = {"stdout": b"", "stderr": b"", "stdout_truncated": True, "stderr_truncated": True, "files": ()}
    return msgspec.structs.replace(finished, notes=(*finished.notes, LEFT_OUT), **left_out)


def failed(refused: SandboxFault) -> Failed | Snooze:
    if refused.fault is Fault.SANDBOX_UNAVAILABLE:
        return Snooze(UNAVAILABLE_SECONDS)  # the program waits for a sandbox, here or elsewhere
    seconds = RETRY_SOON_SECONDS if refused.fault in SOON else RETRY_SECONDS
    return Failed(message=str(refused), type=str(refused.fault), retry_after_seconds=seconds)
