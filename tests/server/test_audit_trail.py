"""The submitter of each job and the audit entries of bulk actions."""

from __future__ import annotations

import pytest
from tests.server.support import ApiServer, api_server, submit_job

from jobyard.operations.audit_log import Audit
from jobyard.operations.local import AUDITED_IDS
from jobyard.server.dependencies import OpenAccess
from jobyard.server.routes.table import ALL_ROUTES
from jobyard.stores.memory import MemoryStore
from jobyard.testing.clock import ManualClock


@pytest.mark.parametrize("role", ["submitter", "operator", "admin"])
async def test_job_records_the_submitting_token(role: str) -> None:
    async with api_server() as api, api.client(role) as client:
        [token] = await api.tokens.list()
        job_id = await submit_job(client, tags=["red"])
        shown = (await client.get(f"/v1/jobs/{job_id}")).json()
        assert (shown["submitted_by"], shown["tags"]) == (token.id, ["red"])
        batch = {"jobs": [{"kind": "mail"}, {"kind": "mail"}]}
        for item in (await client.post("/v1/jobs/batch", json=batch)).json()["items"]:
            assert (await client.get(f"/v1/jobs/{item['id']}")).json()["submitted_by"] == token.id


async def test_open_server_records_no_submitter() -> None:
    api = ApiServer(MemoryStore(ManualClock()), ALL_ROUTES, authenticator=OpenAccess())
    async with api.client() as client:
        assert (await client.get(f"/v1/jobs/{await submit_job(client)}")).json()["submitted_by"] is None


async def test_entries_of_one_job_include_its_bulk_actions() -> None:
    async with api_server() as api, api.client("admin") as client:
        first, second = [await submit_job(client) for _ in range(2)]
        await client.post("/v1/jobs/actions", json={"action": "prioritise", "ids": [first], "priority": 7})
        await client.post("/v1/jobs/actions", json={"action": "cancel", "ids": [first, second]})
        found = [(await client.get(f"/v1/audit?target={job_id}")).json()["items"] for job_id in (first, second)]
        assert [[entry["action"] for entry in entries] for entries in found] == [
            ["job.prioritise", "jobs.cancel"],
            ["jobs.cancel"],
        ]
        assert found[0][0]["details"] == {"priority": 7}


async def test_bulk_action_audits_the_first_ids() -> None:
    async with api_server() as api, api.client("operator") as client:
        ids = [await submit_job(client) for _ in range(AUDITED_IDS + 3)]
        response = await client.post("/v1/jobs/actions", json={"action": "cancel", "ids": ids, "reason": "enough"})
        assert response.json()["changed"] == AUDITED_IDS + 3
        [entry] = await Audit(api.store).read()
        assert entry.action == "jobs.cancel"
        assert entry.details == {
            "changed": AUDITED_IDS + 3,
            "reason": "enough",
            "ids": ids[:AUDITED_IDS],
            "ids_given": AUDITED_IDS + 3,
        }
