"""What a program writes while it runs, as server-sent events; whoever leaves may take the program with them."""

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
from jobyard.executors.sandbox.live_output import (
    FOLLOWER_SECONDS,
    FOLLOWERS,
    OUTPUT,
    PUBLISH_INTERVAL_SECONDS,
    unpack,
)
from jobyard.ports.admin_store import Action
from jobyard.server.problems import HttpError
from jobyard.server.route import RequestContext, Routes
from jobyard.server.routes.events import HEADERS, PING_SECONDS, SEND_SECONDS
from jobyard.server.routes.execute import answer_of, visible_program
from jobyard.server.streaming.broadcaster import LOOK_AROUND_SECONDS
from jobyard.server.streaming.encoding import PING

log = logging.getLogger("jobyard.http")

ROUTES = Routes("programs")
LEFT = "whoever followed it left"
PAGE = 50
STREAMS = {1: "stdout", 2: "stderr"}
_encode = msgspec.json.Encoder().encode


class FollowQuery(RequestSchema, frozen=True, kw_only=True):
    cancel_on_leave: bool = False


@ROUTES.add(
    "GET",
    "/jobs/{job_id}/output",
    Permission.READ,
    "What a program writes, as it writes it, and how it ended (server-sent events: stdout, stderr, restart, finished)",
    query=FollowQuery,
    answer=ExecutionView,
    stays_open=True,
    refusals=(422,),
)
async def follow_output(context: RequestContext) -> Response:
    job = await visible_program(context)
    if context.query.cancel_on_leave and not context.principal.may(Permission.SUBMIT):
        raise HttpError(403, "not_allowed", f"The role {context.principal.role} does not allow cancel_on_leave.")
    return await OutputStream(context, job.id).opened()


def event(name: str, data: Any) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), _encode(data))


class Stream:
    """How much of one stream was told, never half a character."""

    __slots__ = ("count", "decoder", "hashed")

    def __init__(self) -> None:
        self.count = 0
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.hashed = blake2b()

    def add(self, data: bytes, *, final: bool = False) -> str:
        self.count += len(data)
        self.hashed.update(data)
        return self.decoder.decode(data, final)

    def begins(self, whole: bytes) -> bool:
        """Whether what was told is how this begins; cut output may end with half a character that is left out there."""
        end = whole[: self.count]
        return self.count > len(whole) or blake2b(end).digest() == self.hashed.digest()


class Texts:
    """What was told so far, of the latest run."""

    def __init__(self) -> None:
        self._run = 0
        self._streams: dict[tuple[int, int], Stream] = {}

    def begin(self, run: int) -> bytes:
        before, self._run = self._run, run
        return b"" if before in (0, run) else self._anew()

    def _anew(self) -> bytes:
        self._streams.clear()
        return event("restart", {})

    def add(self, index: int, fd: int, data: bytes, *, final: bool = False, is_batch: bool = False) -> bytes:
        text = self._streams.setdefault((index, fd), Stream()).add(data, final=final)
        return event(STREAMS[fd], {"text": text} | ({"index": index} if is_batch else {})) if text else b""

    def rest(self, result: dict[str, Any]) -> Iterator[bytes]:
        """What the result holds beyond that; all of it when it is that of another run."""
        is_batch = "results" in result
        whole = {
            (index, fd): exact(run, name)
            for index, run in enumerate(result["results"] if is_batch else [result])
            for fd, name in STREAMS.items()
        }
        if not all(stream.begins(whole.get(place, b"")) for place, stream in self._streams.items()):
            yield self._anew()
        for (index, fd), data in whole.items():
            told = self._streams.get((index, fd))
            count = 0 if told is None else told.count
            # Half a character that was cut off is in no result, and is not told either.
            yield self.add(index, fd, data[count:], final=count <= len(data), is_batch=is_batch)


def exact(run: dict[str, Any], name: str) -> bytes:
    found = run.get(f"{name}_base64")
    return run[name].encode() if found is None else base64.b64decode(found)


class OutputStream(Response):
    def __init__(self, context: RequestContext, job_id: str) -> None:
        super().__init__()
        self._dependencies = context.dependencies
        self._principal_id = context.principal.id
        self._cancels = context.query.cancel_on_leave
        self._job_id = job_id
        self._after = self._prefix = f"{job_id}."
        self._texts = Texts()
        self._is_batch = False
        self._said_at = 0.0
        self._asked_at = 0.0
        self._sent_at = 0.0

    async def opened(self) -> OutputStream:
        self._dependencies.open.enter(self._principal_id)
        try:
            await self._say_that_somebody_follows()
        except BaseException:
            self._dependencies.open.leave(self._principal_id)
            raise
        return self

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gone = asyncio.ensure_future(until_gone(receive))
        has_left = False
        try:
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            if scope["method"] != "HEAD":
                has_left = not await self._flow(send, gone)
            if not has_left:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            gone.cancel()
            self._dependencies.open.leave(self._principal_id)
            with contextlib.suppress(JobyardError):
                if has_left and self._cancels:
                    await self._dependencies.operate.change_one(Action.CANCEL, self._job_id, reason=LEFT)

    async def _flow(self, send: Send, gone: asyncio.Future[None]) -> bool:
        """Until the program has ended, or the server does; False when the reader left before that."""
        ending: asyncio.Future[Job | None] = self._until_ended()
        draining = asyncio.ensure_future(self._dependencies.draining.wait())
        try:
            while not draining.done() and await self._is_let_in():
                done: list[asyncio.Future[Any]] = [gone, ending, draining]
                await asyncio.wait(done, timeout=PUBLISH_INTERVAL_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                if gone.done():
                    return False
                job = await ending if ending.done() else None
                if ending.done() and job is None:
                    ending = self._until_ended()
                chunk = await self._news() + (b"" if job is None else self._last(job))
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

    async def _news(self) -> bytes:
        await self._say_that_somebody_follows()
        parts: list[bytes] = []
        for record in await self._dependencies.store.fetch_all(OUTPUT, PAGE, self._after):
            if not record.key.startswith(self._prefix):
                break
            self._after, told = record.key, unpack(record.data)
            parts.append(self._texts.begin(told.run))
            for chunk in told.chunks:
                self._is_batch = self._is_batch or chunk.index > 0
                parts.append(self._texts.add(chunk.index, chunk.fd, chunk.data, is_batch=self._is_batch))
        return b"".join(parts)

    def _last(self, job: Job) -> bytes:
        parts: list[bytes] = []
        if job.state is State.COMPLETED and job.result is not None:
            parts += self._texts.rest(msgspec.json.decode(job.result))
        return b"".join(parts) + event("finished", answer_of(job))

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

    async def _say_that_somebody_follows(self) -> None:
        now = asyncio.get_running_loop().time()
        if not self._said_at or now - self._said_at >= FOLLOWER_SECONDS / 3:
            self._said_at = now
            await self._dependencies.store.put(FOLLOWERS, self._job_id, b"{}", expire_seconds=FOLLOWER_SECONDS)

    async def _is_let_in(self) -> bool:
        """A token may have been revoked meanwhile."""
        holds, now = getattr(self._dependencies.authenticator, "holds", None), asyncio.get_running_loop().time()
        if holds is None or now - self._asked_at < LOOK_AROUND_SECONDS:
            return True
        self._asked_at = now
        return bool(await holds(self._principal_id))


async def until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
