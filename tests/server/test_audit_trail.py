"""Of every job that came over HTTP, and of every change, it is known who it was."""

from __future__ import annotations

import pytest
from tests.server.support import ApiServer, api_server, submit_job

from jobyard.operations.audit import Audit
from jobyard.server.dependencies import OpenAccess
from jobyard.server.routes.bulk import AUDITED_IDS
from jobyard.server.routes.table import ALL_ROUTES
from jobyard.stores.memory import MemoryStore
from jobyard.testing.clock import ManualClock


@pytest.mark.parametrize("role", ["submitter", "operator", "admin"])
async def test_a_job_knows_whose_token_handed_it_in(role: str) -> None:
    async with api_server() as api, api.client(role) as client:
        [token] = await api.tokens.list()
        job_id = await submit_job(client, tags=["red"])
        shown = (await client.get(f"/v1/jobs/{job_id}")).json()
        assert (shown["submitted_by"], shown["tags"]) == (token.id, ["red"])
        batch = {"jobs": [{"kind": "mail"}, {"kind": "mail"}]}
        for item in (await client.post("/v1/jobs/batch", json=batch)).json()["items"]:
            assert (await client.get(f"/v1/jobs/{item['id']}")).json()["submitted_by"] == token.id


async def test_on_an_open_server_there_is_nobody_to_name() -> None:
    api = ApiServer(MemoryStore(ManualClock()), ALL_ROUTES, authenticator=OpenAccess())
    async with api.client() as client:
        assert (await client.get(f"/v1/jobs/{await submit_job(client)}")).json()["submitted_by"] is None


async def test_a_change_of_many_names_the_first_of_them() -> None:
    async with api_server() as api, api.client("operator") as client:
        ids = [await submit_job(client) for _ in range(AUDITED_IDS + 3)]
        answer = await client.post("/v1/jobs/actions", json={"action": "cancel", "ids": ids, "reason": "enough"})
        assert answer.json()["changed"] == AUDITED_IDS + 3
        [entry] = await Audit(api.store).read()
        assert entry.action == "jobs.cancel"
        assert entry.details == {
            "changed": AUDITED_IDS + 3,
            "reason": "enough",
            "ids": ids[:AUDITED_IDS],
            "ids_given": AUDITED_IDS + 3,
        }
