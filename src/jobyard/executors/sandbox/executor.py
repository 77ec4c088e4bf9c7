"""Executor for jobs of kind `execute`: runs programs through the sandbox daemon."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from statistics import median
from typing import Any

import msgspec

from jobyard.domain.outcome import Done, Failed, Outcome, Snooze
from jobyard.errors import BadInput
from jobyard.executors.sandbox.bounds import Bounds, check
from jobyard.executors.sandbox.client import OnOutput, SandboxClient, SandboxFault
from jobyard.executors.sandbox.judge import (
    Judged,
    Judgement,
    checker_request,
    compare,
    judged_by_checker,
    summary,
    total_points,
)
from jobyard.executors.sandbox.live_input import LiveInput
from jobyard.executors.sandbox.live_output import LiveOutput
from jobyard.executors.sandbox.program import Program, TestCase, read
from jobyard.executors.sandbox.result import as_json, figures, run_result
from jobyard.ports.executor import Attempt
from jobyard.sandbox.protocol import Fault, Limits, RunFinished, RunVerdict

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
    """`live` publishes output while a program runs; without it, output is in the result only.

    `live_input` brings input and signals to interactive programs.
    """

    def __init__(
        self,
        client: SandboxClient,
        bounds: Bounds | None = None,
        live: LiveOutput | None = None,
        live_input: LiveInput | None = None,
    ) -> None:
        self._client = client
        self._bounds = bounds or Bounds()
        self._live = live
        self._live_input = live_input

    async def perform(self, attempt: Attempt) -> Outcome:
        try:
            program = read(attempt.lease.private_payload)
            check(program, self._bounds)
        except BadInput as error:
            return Failed(message=str(error), type="BadInput", retry=False)
        try:
            return Done(as_json(await self._result(attempt, program)))
        except SandboxFault as refused:
            return failed(refused)

    async def _result(self, attempt: Attempt, program: Program) -> dict[str, Any]:
        number = 0 if self._live is None else self._live.begin()
        if program.tests:
            return summary(program, await self._tests(attempt, program, number))
        if program.is_batch:
            return {"results": await self._batch(attempt, program, number)}
        stdin = program.inputs[0]
        finished, extra = await self._run_times(attempt, program, number, 0, stdin)
        found = run_result(finished) | extra
        if program.is_judged:
            case = TestCase(stdin=stdin, expected=program.expected)
            judged = await self._judge(attempt, program, case, finished)
            found |= {"verdict": judged.verdict, **details(judged)}
        if program.interactive and self._live_input is not None:
            await self._live_input.erase(attempt.lease.job_id)
        return found

    async def _run_times(
        self,
        attempt: Attempt,
        program: Program,
        number: int,
        index: int,
        stdin: bytes,
        limits: Limits | None = None,
    ) -> tuple[RunFinished, dict[str, Any]]:
        """Run as often as requested, until a run is not OK; also return the figures of the single runs."""
        finished: list[RunFinished] = []
        while len(finished) < program.runs and (not finished or finished[-1].verdict is RunVerdict.OK):
            # Only the first run is followed live: the others print the same again.
            live = number if not finished else 0
            finished.append(await self._run(attempt, program, live, index, stdin, limits))
        last = finished[-1]
        if program.runs == 1:
            return last, {}
        runs = [figures(each) for each in finished]
        typical = msgspec.structs.replace(
            last,
            execution_time_ms=median(each.execution_time_ms for each in finished),
            cpu_time_ms=_median([each.cpu_time_ms for each in finished]),
            memory_peak_bytes=max((each.memory_peak_bytes or 0 for each in finished), default=0) or None,
        )
        return typical, {"runs": runs}

    async def _run(
        self, attempt: Attempt, program: Program, number: int, index: int, stdin: bytes, limits: Limits | None
    ) -> RunFinished:
        most, stream = self._bounds.max_file_bytes, self._live is not None and number > 0
        request = program.run_request(stdin, stream=stream, scope=attempt.lease.group or "", limits=limits)
        async with self._output(attempt, program, number, index) as on_output:
            if not program.interactive or self._live_input is None:
                return within(await self._client.run(request, on_output), most)
            async with self._live_input.follow(attempt.lease.job_id) as on_started:
                return within(await self._client.run(request, on_output, on_started), most)

    @asynccontextmanager
    async def _output(
        self, attempt: Attempt, program: Program, number: int, index: int
    ) -> AsyncIterator[OnOutput | None]:
        if self._live is None or not number:
            yield None
            return
        buffer = self._live.open(attempt.lease.job_id, number, index, program.timeout_seconds)
        try:
            yield buffer.feed
        finally:
            self._live.close(buffer)

    async def _judge(self, attempt: Attempt, program: Program, case: TestCase, finished: RunFinished) -> Judged:
        """Judge a run that ended well; one that did not keeps its verdict."""
        if finished.verdict is not RunVerdict.OK:
            return Judged(verdict=finished.verdict)
        if program.checker is not None:
            request = checker_request(program.checker, case, finished.stdout, attempt.lease.group or "")
            return judged_by_checker(await self._client.run(request), finished.stdout)
        if case.expected is None:
            return Judged(verdict=Judgement.ACCEPTED, share=1.0)
        return compare(case.expected, finished.stdout, program.comparison, program.tolerance)

    async def _tests(self, attempt: Attempt, program: Program, number: int) -> list[dict[str, Any]]:
        """Run the cases in order; after a compile error, or the first failure if requested, the rest is not run."""
        results: list[dict[str, Any]] = []
        room = MAX_BATCH_OUTPUT_BYTES
        stopped: str | None = None  # the verdict of the remaining cases
        for index, case in enumerate(program.tests):
            known = {"index": index, "name": case.name or str(index + 1), "max_points": case.points}
            if stopped is not None:
                results.append({**known, "verdict": stopped, "points": 0})
                continue
            finished, extra = await self._run_times(attempt, program, number, index, case.stdin, case.limits)
            judged = await self._judge(attempt, program, case, finished)
            room -= len(finished.stdout) + len(finished.stderr) + sum(len(file.data) for file in finished.files)
            found = run_result(finished if room >= 0 else without_output(finished)) | extra
            points = total_points([case.points * judged.share])
            results.append({**known, **found, "verdict": judged.verdict, "points": points, **details(judged)})
            if finished.verdict is RunVerdict.COMPILE_ERROR:
                stopped = RunVerdict.COMPILE_ERROR
            elif program.stop_at_first_failure and judged.verdict != Judgement.ACCEPTED:
                stopped = Judgement.SKIPPED
        return results

    async def _batch(self, attempt: Attempt, program: Program, number: int) -> list[dict[str, Any]]:
        """Run the inputs in order. A compile error ends the batch: every input would fail the same way."""
        results: list[dict[str, Any]] = []
        room = MAX_BATCH_OUTPUT_BYTES
        for index in range(len(program.inputs)):
            finished, extra = await self._run_times(attempt, program, number, index, program.inputs[index])
            if finished.verdict is RunVerdict.COMPILE_ERROR:
                same = run_result(finished)
                return [same | {"index": each} for each in range(len(program.inputs))]
            room -= len(finished.stdout) + len(finished.stderr) + sum(len(file.data) for file in finished.files)
            found = run_result(finished if room >= 0 else without_output(finished)) | extra
            results.append(found | {"index": index})
        return results


def details(judged: Judged) -> dict[str, Any]:
    """What is known besides the verdict: the message of the checker, the first difference."""
    found: dict[str, Any] = {"message": judged.message} if judged.message else {}
    return found if judged.mismatch is None else found | {"mismatch": judged.mismatch}


def _median(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


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
