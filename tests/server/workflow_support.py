"""A server with workflow files, and a worker that runs them, in this process."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2 as httpx
from tests.server.support import ApiServer, api_server

from jobyard import Jobyard
from jobyard.domain.workflow_files.parse import parse_workflow
from jobyard.operations.workflow_catalog import WorkflowCatalog

EXECUTE = "/api/v2/workflows/execute"
SCAN: dict[str, Any] = {
    "id": "scan",
    "version": 3,
    "description": "Scans a shop.",
    "platform": "${params.platform}",
    "params": {
        "platform": {"type": "string"},
        "urls": {"type": "array", "items": {"type": "string"}, "default": ["a", "b"]},
    },
    "steps": [
        {"id": "scan", "kind": "scan_url", "for_each": "${params.urls}", "input": {"url": "${item}"}},
        {"id": "store", "kind": "store", "needs": ["scan"], "input": {"pages": "${steps.scan.output}"}},
        {"id": "never", "kind": "store", "needs": ["store"], "when": "false", "input": {"pages": []}},
    ],
    "on_failure": [{"id": "alert", "kind": "store", "input": {"pages": ["${failure.step}"]}}],
    "output": {"stored": "${steps.store.output}"},
}
PLAIN: list[dict[str, Any]] = [
    {"id": name, "steps": [{"id": "store", "kind": "store", "input": {"pages": []}}]}
    for name in ("single_product", "report")
]
PLATFORMS = ("ably", "kurly")


class WorkflowServer:
    def __init__(self, api: ApiServer, yard: Jobyard) -> None:
        self.api = api
        self.yard = yard
        self.stored: list[Any] = []


@asynccontextmanager
async def workflow_server(*more: dict[str, Any]) -> AsyncIterator[WorkflowServer]:
    async with api_server() as api:
        texts = {str(file["id"]): json.dumps(file) for file in (SCAN, *PLAIN, *more)}
        definitions = {name: parse_workflow(text, file=f"workflows/{name}.json") for name, text in texts.items()}
        api.dependencies.workflows = WorkflowCatalog(definitions, PLATFORMS)
        yard = Jobyard(store=api.store)
        for platform in PLATFORMS:
            yard.queue(platform, max_running=1)
        made = WorkflowServer(api, yard)

        @yard.job
        async def scan_url(url: str) -> str:
            if url == "bad":
                raise ValueError("cannot scan hunter2")
            return f"page {url}"

        @yard.job
        def store(pages: list[Any]) -> int:
            made.stored.append(pages)
            return len(pages)

        async with yard:
            yield made


async def execute(client: httpx.AsyncClient, workflow_id: str, params: Any = None, **more: Any) -> str:
    body = {"workflow_id": workflow_id, **({} if params is None else {"params": params}), **more}
    response = await client.post(EXECUTE, json=body)
    assert response.status_code == 202, response.text
    document = response.json()
    assert document == {"success": True, "data": {"job_id": document["data"]["job_id"]}}
    return str(document["data"]["job_id"])


async def run_of(client: httpx.AsyncClient, job_id: str) -> dict[str, Any]:
    response = await client.get(f"/api/v2/workflows/{job_id}")
    assert response.status_code == 200, response.text
    assert response.json()["success"] is True
    found: dict[str, Any] = response.json()["data"]
    return found
