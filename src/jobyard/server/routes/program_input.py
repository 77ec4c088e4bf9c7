"""Standard input and signals for interactive programs, while they wait or run."""

from __future__ import annotations

import signal
from typing import Any

import msgspec

from jobyard.api.schemas import execute as schemas
from jobyard.api.schemas.problems import FieldError
from jobyard.domain.access import Permission
from jobyard.domain.job import Job
from jobyard.executors.sandbox import live_input
from jobyard.server.problems import HttpError
from jobyard.server.route import RequestContext, Routes
from jobyard.server.routes.execute import visible_program
from jobyard.server.routes.program_requests import invalid_body

ROUTES = Routes("programs")


@ROUTES.add(
    "POST",
    "/jobs/{job_id}/input",
    Permission.SUBMIT,
    status=202,
    body=schemas.InputRequest,
    response=schemas.InputView,
    problems=(409, 413, 422),
)
async def add_input(context: RequestContext) -> schemas.InputView:
    """Add to the standard input of an interactive program; the field end closes it."""
    body: schemas.InputRequest = context.body
    if body.text and body.base64 is not None:
        raise invalid_body([FieldError("/base64", "Pass text or base64, not both.")])
    data = body.text.encode() if body.base64 is None else body.base64
    return await append(context, await interactive_program(context), data, end=body.end)


@ROUTES.add(
    "POST",
    "/jobs/{job_id}/signal",
    Permission.SUBMIT,
    status=202,
    body=schemas.ProgramSignalRequest,
    response=schemas.InputView,
    problems=(409, 422),
)
async def send_signal(context: RequestContext) -> schemas.InputView:
    """Send a signal to the process of an interactive program, after the input that was added before."""
    number = signal.Signals[f"SIG{context.body.signal}"].value
    return await append(context, await interactive_program(context), b"", number=number)


async def interactive_program(context: RequestContext) -> Job:
    job = await visible_program(context)
    payload: dict[str, Any] = msgspec.json.decode(job.payload)
    if not payload.get("interactive"):
        detail = f"Cannot send to job {job.id}: it is not interactive. Submit it with interactive: true."
        raise HttpError(409, "not_possible", detail)
    if job.state.is_final:
        raise HttpError(409, "not_possible", f"Cannot send to job {job.id}: it has ended.")
    return job


async def append(
    context: RequestContext, job: Job, data: bytes, *, end: bool = False, number: int = 0
) -> schemas.InputView:
    dependencies = context.dependencies
    most = dependencies.bounds.max_input_bytes
    try:
        piece = await live_input.append(dependencies.store, job.id, data, end=end, signal=number, max_bytes=most)
    except live_input.InputClosed:
        detail = f"Cannot send to job {job.id}: its standard input was closed before."
        raise HttpError(409, "not_possible", detail) from None
    except live_input.TooMuchInput:
        detail = (
            f"Cannot send to job {job.id}: its input would exceed {most:,} bytes or {live_input.MAX_PIECES:,} pieces."
        )
        raise HttpError(413, "payload_too_large", detail) from None
    now = await dependencies.store.get(job.id)
    if now is None or now.state.is_final:  # it ended meanwhile, and has erased what it knew of
        await live_input.erase(dependencies.store, job.id)
    return schemas.InputView(job_id=job.id, number=piece)
