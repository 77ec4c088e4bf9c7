"""Webhooks: signing, sending with faults, the delivery log, redelivery."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import urllib.parse
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import msgspec

from jobyard.demo.fake_github.accounts_json import Json, timestamp
from jobyard.demo.fake_github.core import Core
from jobyard.demo.fake_github.entities import Hook, Installation, Repository

Deliver = Callable[[Hook, Mapping[str, str], bytes], Awaitable[int]]
TARGET_TYPES = {"app": "integration", "organization": "organization", "repository": "repository"}


@dataclass(eq=False, kw_only=True)
class Delivery:
    """One attempt to deliver an event to one hook."""

    id: int
    guid: str
    hook: Hook
    event: str
    action: str | None
    headers: dict[str, str]
    body: bytes
    repository_id: int | None
    installation_id: int | None
    redelivery: bool
    delivered_at: float
    duration: float = 0.0
    status: str = "pending"
    status_code: int = 0

    @property
    def succeeded(self) -> bool:
        return 200 <= self.status_code < 400


class Webhooks:
    def __init__(self, core: Core, deliver: Deliver | None) -> None:
        self._core = core
        self.deliver = deliver
        self.hooks: dict[int, Hook] = {}
        # Finished attempts, oldest first.
        self.log: deque[Delivery] = deque()
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, hook: Hook) -> Hook:
        self.hooks[hook.id] = hook
        return hook

    def emit(
        self,
        repository: Repository,
        event: str,
        action: str | None,
        payload: Callable[[Installation | None, bool], Json],
        installation: Installation | None,
    ) -> None:
        """Send an event to every hook that applies; each hook gets a GUID of its own."""
        organization = not self._core.hits("organization_omitted")
        for hook in list(self.hooks.values()):
            if not hook.active or event not in hook.events or not _applies(hook, repository, installation):
                continue
            named = installation if hook.scope == "app" else None
            self._send(self._delivery(hook, event, action, payload(named, organization), repository, named))

    def ping(self, hook: Hook) -> None:
        """The first event of a new hook."""
        payload: Json = {
            "zen": "Keep it logically awesome.",
            "hook_id": hook.id,
            "hook": self._core.accounts_json.hook(hook),
            "sender": self._core.accounts_json.sender(),
        }
        if hook.repository is not None:
            payload["repository"] = self._core.accounts_json.repository(hook.repository)
        if hook.scope == "organization" and hook.owner is not None:
            payload["organization"] = self._core.accounts_json.organization(hook.owner)
        self._send(self._delivery(hook, "ping", None, payload, None, None))

    def redeliver(self, delivery: Delivery) -> None:
        """Send it again with the same GUID; the attempt gets a delivery id of its own."""
        again = Delivery(
            id=self._next_delivery_id(),
            guid=delivery.guid,
            hook=delivery.hook,
            event=delivery.event,
            action=delivery.action,
            headers=delivery.headers,
            body=delivery.body,
            repository_id=delivery.repository_id,
            installation_id=delivery.installation_id,
            redelivery=True,
            delivered_at=self._core.clock(),
        )
        self._start(again, 0.0)

    def of_hook(self, hook: Hook) -> list[Delivery]:
        """The log of one hook, newest first, without what is older than the retention."""
        oldest = self._core.clock() - self._core.timings.delivery_retention
        found = [each for each in self.log if each.hook is hook and each.delivered_at >= oldest]
        return sorted(found, key=lambda each: each.id, reverse=True)

    async def drain(self) -> None:
        """Wait until every delivery under way, delayed ones too, has ended."""
        while self._tasks:
            await asyncio.gather(*self._tasks)

    @property
    def in_flight(self) -> int:
        return len(self._tasks)

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _send(self, delivery: Delivery) -> None:
        core, faults = self._core, self._core.faults
        if core.hits("webhook_dropped"):
            return
        delay = 0.0
        if core.hits("webhook_delayed"):
            delay += core.rng.uniform(0.0, faults.webhook_delay_seconds)
        if core.hits("webhook_reordered"):
            delay += core.rng.uniform(0.0, faults.webhook_reorder_seconds)
        self._start(delivery, delay)
        if core.hits("webhook_duplicated"):
            self.redeliver(delivery)

    def _start(self, delivery: Delivery, delay: float) -> None:
        failed = self._core.hits("webhook_failed")
        task = asyncio.get_running_loop().create_task(self._attempt(delivery, delay, failed))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _attempt(self, delivery: Delivery, delay: float, failed: bool) -> None:
        if delay:
            await asyncio.sleep(delay)
        loop = asyncio.get_running_loop()
        began, delivery.delivered_at = loop.time(), self._core.clock()
        try:
            async with asyncio.timeout(self._core.timings.webhook_timeout):
                delivery.status_code = 502 if failed else await self._post(delivery)
        except TimeoutError:
            delivery.status_code = 504
        delivery.duration = round(loop.time() - began, 2)
        delivery.status = _status_text(delivery.status_code)
        self.log.append(delivery)
        oldest = self._core.clock() - self._core.timings.delivery_retention
        while self.log[0].delivered_at < oldest:
            self.log.popleft()

    async def _post(self, delivery: Delivery) -> int:
        if self.deliver is None:
            return 502
        try:
            return await self.deliver(delivery.hook, delivery.headers, delivery.body)
        except TimeoutError:
            raise
        except Exception:  # whatever the receiver raises, GitHub sees a connection that failed
            return 502

    def _delivery(
        self,
        hook: Hook,
        event: str,
        action: str | None,
        payload: Json,
        repository: Repository | None,
        installation: Installation | None,
    ) -> Delivery:
        guid, body = self._core.guid(), _encode(hook, payload)
        return Delivery(
            id=self._next_delivery_id(),
            guid=guid,
            hook=hook,
            event=event,
            action=action,
            headers=self._headers(hook, event, guid, body),
            body=body,
            repository_id=repository.id if repository else None,
            installation_id=installation.id if installation else None,
            redelivery=False,
            delivered_at=self._core.clock(),
        )

    def _headers(self, hook: Hook, event: str, guid: str, body: bytes) -> dict[str, str]:
        secret = hook.secret.encode()
        form = hook.content_type == "form"
        return {
            "Accept": "*/*",
            "Content-Type": "application/x-www-form-urlencoded" if form else "application/json",
            "User-Agent": "GitHub-Hookshot/fa4e000",
            "X-GitHub-Delivery": guid,
            "X-GitHub-Event": event,
            "X-GitHub-Hook-ID": str(hook.id),
            "X-GitHub-Hook-Installation-Target-ID": str(hook.target_id),
            "X-GitHub-Hook-Installation-Target-Type": TARGET_TYPES[hook.scope],
            "X-GitHub-Enterprise-Host": self._core.host,
            "X-GitHub-Enterprise-Version": self._core.version,
            "X-Hub-Signature": "sha1=" + hmac.new(secret, body, hashlib.sha1).hexdigest(),
            "X-Hub-Signature-256": "sha256=" + hmac.new(secret, body, hashlib.sha256).hexdigest(),
        }

    def _next_delivery_id(self) -> int:
        return self._core.next_id("delivery", 12_000_000_001)


def delivery_json(delivery: Delivery) -> Json:
    return {
        "id": delivery.id,
        "guid": delivery.guid,
        "delivered_at": timestamp(delivery.delivered_at),
        "redelivery": delivery.redelivery,
        "duration": delivery.duration,
        "status": delivery.status,
        "status_code": delivery.status_code,
        "event": delivery.event,
        "action": delivery.action,
        "installation_id": delivery.installation_id,
        "repository_id": delivery.repository_id,
        "throttled_at": None,
    }


def delivery_detail_json(delivery: Delivery) -> Json:
    return {
        **delivery_json(delivery),
        "url": delivery.hook.url,
        "request": {"headers": delivery.headers, "payload": _decode(delivery)},
        "response": {"headers": {}, "payload": None},
    }


def _applies(hook: Hook, repository: Repository, installation: Installation | None) -> bool:
    match hook.scope:
        case "app":
            return installation is not None
        case "organization":
            return hook.owner is repository.owner
        case "repository":
            return hook.repository is repository


def _encode(hook: Hook, payload: Json) -> bytes:
    raw = msgspec.json.encode(payload)
    return urllib.parse.urlencode({"payload": raw.decode()}).encode() if hook.content_type == "form" else raw


def _decode(delivery: Delivery) -> object:
    raw = delivery.body
    if delivery.hook.content_type == "form":
        raw = urllib.parse.parse_qs(raw.decode())["payload"][0].encode()
    return msgspec.json.decode(raw)


def _status_text(code: int) -> str:
    match code:
        case 502:
            return "failed to connect to host"
        case 504:
            return "timed out"
        case _ if 200 <= code < 400:
            return "OK"
        case _:
            return f"Invalid HTTP Response: {code}"
