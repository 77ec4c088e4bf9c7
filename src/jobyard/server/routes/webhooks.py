"""The webhook of GitHub: events are verified and stored before they are acknowledged."""

from __future__ import annotations

import asyncio
import logging

from jobyard.api.schemas.runners import DeliveryResponse
from jobyard.github.webhook import MAX_BODY_BYTES, BadDelivery, is_signed, job_event, payload_of
from jobyard.server.parsing import read_body
from jobyard.server.problems import HttpError
from jobyard.server.route import RequestContext, Routes

log = logging.getLogger("jobyard.runners")

ROUTES = Routes("webhooks")
NOT_CONFIGURED = "GitHub runners are not configured on this server. Set runners.profiles and runners.webhook_secrets."
HEADERS = (
    ("X-GitHub-Event", "The name of the event."),
    ("X-Hub-Signature-256", "The HMAC of the body, as sha256=…"),
    ("X-GitHub-Delivery", "The id of the delivery."),
)
# A larger body is verified in a thread: hashing it would hold the event loop.
LARGE_BODY_BYTES = 1 << 20
# Large bodies in memory at a time; the sender of one has not shown a signature yet.
_large_bodies = asyncio.Semaphore(8)


@ROUTES.add(
    "POST",
    "/webhooks/github",
    None,
    response=DeliveryResponse,
    headers=HEADERS,
    problems=(400, 401, 404, 413),
)
async def github_webhook(context: RequestContext) -> DeliveryResponse:
    """Receive an event of GitHub."""
    services = context.dependencies.runners
    if services is None or not services.webhook_secrets:
        raise HttpError(404, "not_found", NOT_CONFIGURED)
    headers = context.request.headers
    body = await _signed_body(context, services.webhook_secrets)
    try:
        payload = payload_of(body, headers.get("content-type", ""))
    except BadDelivery as error:
        raise HttpError(400, "bad_input", str(error)) from error
    event, delivery = headers.get("x-github-event", ""), headers.get("x-github-delivery", "")
    if event != "workflow_job":
        return DeliveryResponse(result="pong" if event == "ping" else "ignored", event=event, delivery=delivery)
    found = job_event(payload, await context.dependencies.store.now())
    if found is None:
        # Such payloads exist. Rejecting them would only make GitHub show a failed delivery forever.
        log.warning("delivery %s describes no job", delivery)
        return DeliveryResponse(result="ignored", event=event, delivery=delivery)
    applied = await services.ingest.receive(found)
    return DeliveryResponse(result=applied.effect.value, event=event, delivery=delivery, job_id=applied.job.job_id)


async def _signed_body(context: RequestContext, secrets: tuple[str, ...]) -> bytes:
    """The body, if its signature is right. Raises HttpError."""
    request = context.request
    signature = request.headers.get("x-hub-signature-256", "")
    if not signature:
        raise HttpError(401, "bad_signature", "The request has no X-Hub-Signature-256 header.")
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) <= LARGE_BODY_BYTES:
        body = await read_body(request, LARGE_BODY_BYTES)
        is_right = is_signed(body, signature, secrets)
    else:
        async with _large_bodies:
            body = await read_body(request, MAX_BODY_BYTES)
            is_right = await asyncio.to_thread(is_signed, body, signature, secrets)
    if not is_right:
        raise HttpError(401, "bad_signature", "The signature does not match the body. Check the secret of the webhook.")
    return body
