"""Ids with a NUL, which PostgreSQL cannot store, are not found."""

from __future__ import annotations

import pytest
from tests.server.support import ApiServer, submit_job
from tests.stores.postgres_support import schema, store

from jobyard.server.routes.table import ALL_ROUTES
from jobyard.stores.postgres import PostgresStore

__all__ = ["schema", "store"]

ASKED = [
    ("GET", "/v1/jobs/a%00"),
    ("GET", "/v1/jobs/%00/explain"),
    ("GET", "/v1/jobs/%00/events"),
    ("POST", "/v1/jobs/%00/cancel"),
    ("POST", "/v1/jobs/%00/retry"),
    ("DELETE", "/v1/jobs/%00"),
    ("POST", "/v1/workers/%00/stop"),
    ("DELETE", "/v1/tokens/%00"),
    ("POST", "/v1/tokens/%00/rotate"),
    ("GET", "/v1/queues/%00"),
]


@pytest.mark.parametrize("role", ["admin", "submitter"])
async def test_id_with_null_character_is_not_found(store: PostgresStore, role: str) -> None:
    api = ApiServer(store, ALL_ROUTES)
    async with api.client(role) as client:
        await submit_job(client)
        found = {path: await client.request(method, path) for method, path in ASKED}
        allowed = {path: response for path, response in found.items() if response.status_code != 403}
        assert len(allowed) >= (9 if role == "admin" else 4)  # a submitter sees no queues
        assert {path: response.status_code for path, response in allowed.items()} == dict.fromkeys(allowed, 404)
        response = await client.post("/v1/jobs/actions", json={"action": "cancel", "ids": ["a\0"]})
        assert (response.status_code, response.json()["errors"][0]["pointer"]) == (422, "/ids/0")
