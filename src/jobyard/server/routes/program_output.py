"""Live output of a program as server-sent events; a disconnect can cancel the program."""

from __future__ import annotations

import asyncio
import base64
import codecs
import contextlib
import logging
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from jobyard.api.schemas.execute import ExecutionView
from jobyard.api.schemas.jobs import RequestSchema
from jobyard.domain.access import Permission
from jobyard.domain.job import Job, State
from jobyard.errors import JobyardError
from jobyard.executors.sandbox.live_output import FOLLOWER_SECONDS, FOLLOWERS, OUTPUT, PUBLISH_INTERVAL_SECONDS, unpack
from jobyard.operations.executions import raw_execution
from jobyard.ports.admin_store import Action
from jobyard.server.auth import require_no_cross_site
from jobyard.server.problems import HttpError
from jobyard.server.route import RequestContext, Routes
from jobyard.server.routes.events import HEADERS, PING_SECONDS, SEND_SECONDS, until_disconnected
from jobyard.server.routes.execute import visible_program
from jobyard.server.streaming.broadcaster import SLOW_POLL_SECONDS
from jobyard.server.streaming.encoding import PING

log = logging.getLogger("jobyard.http")

ROUTES = Routes("programs")
DISCONNECTED = "the client that followed the output disconnected"
PAGE = 50
STREAMS = {1: "stdout", 2: "stderr"}
_encode = msgspec.json.Encoder().encode


class FollowQuery(RequestSchema, frozen=True, kw_only=True):
    cancel_on_leave: bool = False


@ROUTES.add(
    "GET",
    "/jobs/{job_id}/output",
    Permission.READ,
    query=FollowQuery,
    response=ExecutionView,
    is_stream=True,
    problems=(422,),
)
async def follow_output(context: RequestContext) -> Response:
    """Stream the output of a program and its end (server-sent events: stdout, stderr, restart, finished)."""
    job = await visible_program(context)
    if context.query.cancel_on_leave:
        require_no_cross_site(context.request)
        if not context.principal.may(Permission.SUBMIT):
            detail = f"The role {context.principal.role} cannot use cancel_on_leave: it cannot cancel jobs."
            raise HttpError(403, "not_allowed", detail)
    return await OutputStream(context, job.id).opened()


def event(name: str, data: Any) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), _encode(data))


class SentStream:
    """How much of one stream has been sent; characters are never split."""

    __slots__ = ("count", "decoder", "hashed")

    def __init__(self) -> None:
        self.count = 0
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.hashed = blake2b()

    def add(self, data: bytes, *, final: bool = False) -> str:
        self.count += len(data)
        self.hashed.update(data)
        return self.decoder.decode(data, final)

    def is_prefix_of(self, whole: bytes) -> bool:
        """Whether the output starts with what was sent. Truncated output lacks a character that was cut in half."""
        end = whole[: self.count]
        return self.count > len(whole) or blake2b(end).digest() == self.hashed.digest()


class SentOutput:
    """What has been sent of the latest run."""

    def __init__(self) -> None:
        self._run = 0
        self._streams: dict[tuple[int, int], SentStream] = {}

    def begin(self, run: int) -> bytes:
        before, self._run = self._run, run
        return b"" if before in (0, run) else self._restart()

    def _restart(self) -> bytes:
        self._streams.clear()
        return event("restart", {})

    def add(self, index: int, fd: int, data: bytes, *, final: bool = False, is_batch: bool = False) -> bytes:
        text = self._streams.setdefault((index, fd), SentStream()).add(data, final=final)
        return event(STREAMS[fd], {"text": text} | ({"index": index} if is_batch else {})) if text else b""

    def rest(self, result: dict[str, Any]) -> Iterator[bytes]:
        """The part of the result that has not been sent; all of it if the result is from another run."""
        is_batch = "results" in result
        whole = {
            (index, fd): output_bytes(run, name)
            for index, run in enumerate(result["results"] if is_batch else [result])
            for fd, name in STREAMS.items()
        }
        if not all(stream.is_prefix_of(whole.get(key, b"")) for key, stream in self._streams.items()):
            yield self._restart()
        for (index, fd), data in whole.items():
            sent = self._streams.get((index, fd))
            count = 0 if sent is None else sent.count
            # A character that truncation cut in half is not in the result, and is not sent either.
            yield self.add(index, fd, data[count:], final=count <= len(data), is_batch=is_batch)


def output_bytes(run: dict[str, Any], name: str) -> bytes:
    found = run.get(f"{name}_base64")  # a test case that was not run has neither
    return run.get(name, "").encode() if found is None else base64.b64decode(found)


class OutputStream(Response):
    def __init__(self, context: RequestContext, job_id: str) -> None:
        super().__init__()
        self._dependencies = context.dependencies
        self._operations = context.operations
        self._principal_id = context.principal.id
        self._cancels = context.query.cancel_on_leave
        self._job_id = job_id
        self._after = self._prefix = f"{job_id}."
        self._sent = SentOutput()
        self._is_batch = False
        self._announced_at = 0.0
        self._checked_at = 0.0
        self._sent_at = 0.0

    async def opened(self) -> OutputStream:
        self._dependencies.open_requests.acquire(self._principal_id)
        try:
            await self._announce_follower()
        except BaseException:
            self._dependencies.open_requests.release(self._principal_id)
            raise
        return self

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        disconnected = asyncio.ensure_future(until_disconnected(receive))
        has_left = False
        try:
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            if scope["method"] != "HEAD":
                has_left = not await self._follow(send, disconnected)
            if not has_left:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            disconnected.cancel()
            self._dependencies.open_requests.release(self._principal_id)
            with contextlib.suppress(JobyardError):
                if has_left and self._cancels:
                    await self._operations.change_one(Action.CANCEL, self._job_id, reason=DISCONNECTED)

    async def _follow(self, send: Send, disconnected: asyncio.Future[None]) -> bool:
        """Send until the program ends or the server stops. Returns False if the client disconnected before."""
        ending: asyncio.Future[Job | None] = self._until_ended()
        draining = asyncio.ensure_future(self._dependencies.draining.wait())
        try:
            while not draining.done() and await self._is_authorized():
                done: list[asyncio.Future[Any]] = [disconnected, ending, draining]
                await asyncio.wait(done, timeout=PUBLISH_INTERVAL_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                if disconnected.done():
                    return False
                job = await ending if ending.done() else None
                if ending.done() and job is None:
                    ending = self._until_ended()
                chunk = await self._new_output() + (b"" if job is None else self._final_events(job))
                if not await self._send(send, chunk):
                    return False
                if job is not None:
                    break
        finally:
            ending.cancel()
            draining.cancel()
        return True

    def _until_ended(self) -> asyncio.Future[Job | None]:
        return asyncio.ensure_future(self._dependencies.store.wait_for_end(self._job_id, FOLLOWER_SECONDS))

    async def _new_output(self) -> bytes:
        await self._announce_follower()
        parts: list[bytes] = []
        for record in await self._dependencies.store.fetch_all(OUTPUT, PAGE, self._after):
            if not record.key.startswith(self._prefix):
                break
            self._after, output = record.key, unpack(record.data)
            parts.append(self._sent.begin(output.run))
            for chunk in output.chunks:
                self._is_batch = self._is_batch or chunk.index > 0
                parts.append(self._sent.add(chunk.index, chunk.fd, chunk.data, is_batch=self._is_batch))
        return b"".join(parts)

    def _final_events(self, job: Job) -> bytes:
        parts: list[bytes] = []
        if job.state is State.COMPLETED and job.result is not None:
            parts += self._sent.rest(msgspec.json.decode(job.result))
        return b"".join(parts) + event("finished", raw_execution(job))

    async def _send(self, send: Send, chunk: bytes) -> bool:
        now = asyncio.get_running_loop().time()
        if not chunk and now - self._sent_at < PING_SECONDS:
            return True
        self._sent_at = now
        try:
            async with asyncio.timeout(SEND_SECONDS):
                await send({"type": "http.response.body", "body": chunk or PING, "more_body": True})
        except TimeoutError:
            return False
        return True

    async def _announce_follower(self) -> None:
        now = asyncio.get_running_loop().time()
        if not self._announced_at or now - self._announced_at >= FOLLOWER_SECONDS / 3:
            self._announced_at = now
            await self._dependencies.store.put(FOLLOWERS, self._job_id, b"{}", expire_seconds=FOLLOWER_SECONDS)

    async def _is_authorized(self) -> bool:
        """Whether the token is still valid; checked about once a second."""
        now = asyncio.get_running_loop().time()
        if now - self._checked_at < SLOW_POLL_SECONDS:
            return True
        self._checked_at = now
        return await self._dependencies.authenticator.is_valid(self._principal_id)
