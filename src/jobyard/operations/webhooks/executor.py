"""Jobs that deliver the result of a program: each waits for the program's end, then calls the URL until it accepts."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Final

import msgspec

from jobyard.domain.ids import new_id
from jobyard.domain.job import Job, NewJob
from jobyard.domain.outcome import Done, Failed, Outcome, Snooze
from jobyard.domain.retry import Delays
from jobyard.operations.executions import RawExecution, raw_execution
from jobyard.operations.webhooks.address import ForbiddenAddress, check_url
from jobyard.operations.webhooks.delivery import DeliveryFailed, post
from jobyard.operations.webhooks.signature import signed_headers
from jobyard.ports.executor import Attempt
from jobyard.ports.store import Store

KIND: Final = "execution-webhook"
QUEUE: Final = "webhooks"
EVENT: Final = "execution.finished"
DELAYS: Final = Delays((5.0, 30.0, 120.0, 300.0, 900.0, 1800.0))
MAX_ATTEMPTS: Final = len(DELAYS.seconds) + 1
# Between two looks at a program that has not ended: soon for short ones, seldom for long ones.
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.2, 5.0
# The webhook is stored before its program; one whose program never appears ends after this time.
MISSING_SECONDS: Final = 60.0
GONE: Final = 410  # the receiver wants no more


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """Private payload of the job: the URL may contain a token of the receiver."""

    job_id: str
    url: str
    secret: str
    created_at: float


class _Message(msgspec.Struct, frozen=True, kw_only=True):
    type: str
    timestamp: str
    data: RawExecution


def webhook_job(job_id: str, group: str | None, url: str, secret: str) -> NewJob:
    """The job that waits for the end of program `job_id`."""
    webhook = Webhook(job_id=job_id, url=url, secret=secret, created_at=time.time())
    return NewJob(
        id=new_id(),
        kind=KIND,
        queue=QUEUE,
        group=group,
        payload=msgspec.json.encode({"job_id": job_id}),
        private_payload=msgspec.json.encode(webhook),
        max_attempts=MAX_ATTEMPTS,
        backoff=DELAYS,
        delay_seconds=FIRST_WAIT_SECONDS,
    )


class WebhookExecutor:
    def __init__(self, store: Store, *, allow_private: bool = False) -> None:
        self._store = store
        self._allow_private = allow_private

    async def perform(self, attempt: Attempt) -> Outcome:
        try:
            webhook = msgspec.json.decode(attempt.lease.private_payload or b"", type=Webhook)
            target = check_url(webhook.url, allow_private=self._allow_private)
        except (msgspec.DecodeError, ForbiddenAddress) as error:
            return Failed(message=str(error), type="BadInput", retry=False)
        job = await self._store.get(webhook.job_id)
        age = max(0.0, time.time() - webhook.created_at)
        if job is None and age > MISSING_SECONDS:
            return Failed(message=f"Job {webhook.job_id} does not exist any more.", type="JobNotFound", retry=False)
        if job is None or not job.state.is_final:
            return Snooze(min(max(age / 4, FIRST_WAIT_SECONDS), LONGEST_WAIT_SECONDS))
        body = message(job)
        headers = signed_headers(webhook.secret, attempt.lease.job_id, int(time.time()), body)
        try:
            status = await post(target, headers, body, allow_private=self._allow_private)
        except ForbiddenAddress as error:
            return Failed(message=str(error), type="ForbiddenAddress", retry=False)
        except DeliveryFailed as error:
            return Failed(message=f"Cannot deliver to {target.authority}: {error}", type="DeliveryFailed")
        if 200 <= status < 300:
            return Done(msgspec.json.encode({"status": status}))
        why = f"{target.authority} answered with {status}"
        return Failed(message=why, type="DeliveryFailed", retry=status != GONE)


def message(job: Job) -> bytes:
    ended = datetime.now(UTC).isoformat(timespec="milliseconds")
    return msgspec.json.encode(_Message(type=EVENT, timestamp=ended, data=raw_execution(job)))
