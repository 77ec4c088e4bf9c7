"""Sends webhooks as GitHub does, to a real server on a store of choice."""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import itertools
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx2 as httpx
from tests.github.runner_site import LABELS, RunnerSite, runner_site
from tests.server.support import ApiServer, serving
from tests.story.engines import empty_store
from tests.support import Watched

from jobyard.config.store_factory import make_store
from jobyard.domain.job import Job, State
from jobyard.domain.runners.plan import plan
from jobyard.github.tickets import QUEUE, ticket_of
from jobyard.ports.admin_store import Filter
from jobyard.ports.clock import SystemClock
from jobyard.ports.store import Store
from jobyard.server.routes.table import ALL_ROUTES
from jobyard.stores.memory import MemoryStore

PATH = "/webhooks/github"
SECRET = "secret"
Json = dict[str, Any]


def workflow_job(action: str, job_id: int = 7, /, *, org: str | None = "acme", **fields: Any) -> Json:
    """The payload of an event; `fields` replace those of the job, and `gate` is the time of the deployment."""
    gate, owner = fields.pop("gate", None), org or "kim"
    job: Json = {
        "id": job_id,
        "run_id": job_id + 5_000,
        "run_attempt": 1,
        "name": f"build {job_id}",
        "html_url": f"https://github.test/{owner}/shop/actions/runs/{job_id + 5_000}/job/{job_id}",
        "status": action,
        "conclusion": "success" if action == "completed" else None,
        "created_at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "labels": list(LABELS),
        "runner_id": None,
        "runner_name": None,
    }
    account = {"login": owner, "type": "User" if org is None else "Organization"}
    payload: Json = {
        "action": action,
        "workflow_job": job | fields,
        "repository": {"name": "shop", "full_name": f"{owner}/shop", "owner": account},
        "sender": {"login": "kim"},
    }
    if org is not None:
        payload["organization"] = {"login": org}
    if gate is not None:
        payload["deployment"] = {"updated_at": gate}
    return payload


def sign(body: bytes, secret: str = SECRET) -> str:
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


class WebhookClient:
    """The server, its store, and what GitHub may send to it."""

    def __init__(self, site: RunnerSite, watched: Watched, api: ApiServer, http: httpx.AsyncClient) -> None:
        self.site = site
        self.watched = watched
        self.api = api
        self.http = http
        self._guids = itertools.count(1)

    async def post(self, body: bytes, *, signature: str | None = "", **headers: str) -> httpx.Response:
        """`signature`: None for none; empty for the right one. Headers by name, with _ for -."""
        sent = {"Content-Type": "application/json", "X-GitHub-Event": "workflow_job"}
        sent["X-GitHub-Delivery"] = f"guid-{next(self._guids)}"
        if signature is not None:
            sent["X-Hub-Signature-256"] = signature or sign(body)
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        encoded = {name.encode(): value.encode("latin-1") for name, value in sent.items()}
        return await self.http.post(PATH, content=body, headers=encoded)

    async def send(self, payload: Mapping[str, Any] | list[Any], **options: Any) -> str:
        """Deliver an event that must be acknowledged; the result that the server names."""
        response = await self.post(json.dumps(payload).encode(), **options)
        assert response.status_code == 200, response.text
        return str(response.json()["result"])

    async def send_form(self, payload: Mapping[str, Any]) -> str:
        body = urlencode({"payload": json.dumps(payload)}).encode()
        response = await self.post(body, Content_Type="application/x-www-form-urlencoded")
        assert response.status_code == 200, response.text
        return str(response.json()["result"])

    async def state(self, job_id: int = 7) -> str | None:
        found = await self.site.ingest.jobs.get(job_id)
        return None if found is None else found.state.value

    async def tickets(self) -> list[int]:
        """The jobs because of which tickets wait or run."""
        return [ticket_of(job).job_id for job in await self.jobs()]

    async def jobs(self) -> list[Job]:
        where = Filter(queue=QUEUE, states=(State.PENDING, State.RUNNING))
        return list((await self.site.store.find(where, 1000)).jobs)

    async def planned_in(self, seconds: float) -> list[int]:
        """The jobs that the plan would add a ticket for, that much later."""
        jobs, runners = await self.site.ingest.jobs.active(), await self.site.ingest.runners.all()
        tickets = [ticket_of(job) for job in await self.jobs()]
        now = await self.site.now() + round(seconds * 1000)
        return [job.job_id for job in plan(jobs, runners, tickets, now).add]

    async def is_empty(self) -> bool:
        """Whether nothing at all was stored."""
        jobs = self.site.ingest.jobs
        kept = [*await jobs.active(), *await jobs.unserved(), *await jobs.repositories(), *await self.jobs()]
        return not kept and await jobs.get(7) is None


@asynccontextmanager
async def webhook_client(
    store: Store | None = None, secrets: tuple[str, ...] = (SECRET,)
) -> AsyncIterator[WebhookClient]:
    watched = Watched(store or MemoryStore(SystemClock()))
    async with runner_site(store=watched.as_store()) as site:
        api = ApiServer(site.store, ALL_ROUTES)
        api.dependencies.runners = dataclasses.replace(site.services, webhook_secrets=secrets)
        async with serving(api.app) as url, httpx.AsyncClient(base_url=url, timeout=30) as http:
            yield WebhookClient(site, watched, api, http)


@asynccontextmanager
async def on_engine(engine: str, folder: Path) -> AsyncIterator[WebhookClient]:
    with empty_store(engine, folder) as url:
        async with webhook_client(make_store(url)) as client:
            yield client
