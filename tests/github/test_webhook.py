"""The webhook as a protocol: signatures, bodies, events that describe no job, and outages."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.github.runner_site import LABELS
from tests.github.webhook_client import PATH, SECRET, WebhookClient, sign, webhook_client, workflow_job

from jobyard.errors import StoreUnavailable
from jobyard.github.webhook import MAX_BODY_BYTES

# Without a time of creation: a test may send it long after this module was imported.
QUEUED = json.dumps(workflow_job("queued", created_at=None)).encode()
ACTIONS = ("queued", "in_progress", "completed")
FORM = "application/x-www-form-urlencoded"


@pytest.fixture
async def client() -> AsyncIterator[WebhookClient]:
    async with webhook_client() as made:
        yield made


# Signatures


async def test_wrong_signatures_are_rejected_and_nothing_is_stored(client: WebhookClient) -> None:
    for signature in (
        None,
        sign(QUEUED, "wrong"),
        sign(QUEUED + b" "),
        sign(QUEUED).removeprefix("sha256="),
        sign(QUEUED).upper(),
        "sha256=",
        "sha256=ü",
        "sha1=0",
    ):
        response = await client.post(QUEUED, signature=signature)
        assert (response.status_code, response.json()["code"]) == (401, "bad_signature"), signature
    assert await client.is_empty()


async def test_right_signature_is_stored(client: WebhookClient) -> None:
    response = await client.post(QUEUED, X_GitHub_Delivery="72d3162e")
    assert response.status_code == 200
    assert response.json() == {"result": "new", "event": "workflow_job", "delivery": "72d3162e", "job_id": 7}
    assert not await client.is_empty()
    job = await client.site.ingest.jobs.get(7)
    assert job is not None
    assert (job.job_id, job.run_id, job.job_name, job.repo_full_name, job.org_name, job.labels) == (
        7, 5007, "build 7", "acme/shop", "acme", LABELS,
    )  # fmt: skip


async def test_secrets_can_be_rotated() -> None:
    async with webhook_client(secrets=("new", "old")) as client:
        for secret, status in (("old", 200), ("new", 200), (SECRET, 401), ("", 401)):
            assert (await client.post(QUEUED, signature=sign(QUEUED, secret))).status_code == status


async def test_without_secrets_nothing_is_accepted() -> None:
    async with webhook_client(secrets=()) as client:
        assert (await client.post(QUEUED, signature=sign(QUEUED, ""))).status_code == 404
        assert await client.is_empty()


async def test_no_token_is_needed_and_other_methods_are_rejected(client: WebhookClient) -> None:
    assert (await client.post(QUEUED)).status_code == 200
    assert (await client.http.get(PATH)).status_code == 405


async def test_secret_and_payload_are_not_logged(client: WebhookClient, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        await client.post(QUEUED, signature=sign(QUEUED, "wrong"))
        await client.send(workflow_job("queued", name="visible"))
    assert "visible" in caplog.text
    assert SECRET not in caplog.text
    assert sign(QUEUED, "wrong") not in caplog.text


# Bodies


async def test_form_bodies(client: WebhookClient) -> None:
    assert await client.send_form(workflow_job("queued", name="a + b & c=ü")) == "new"
    job = await client.site.ingest.jobs.get(7)
    assert job is not None
    assert job.job_name == "a + b & c=ü"


async def test_garbage_is_a_bad_request(client: WebhookClient) -> None:
    plain = (
        b"",
        b"{",
        b"[1]",
        b'"text"',
        b"\xff\xfe",
        b'{"a": "\xff"}',
        b'{"a": NaN}',
        b"[" * 100_000,
    )
    form = (QUEUED, b"", b"payload=%7B", b"payload=%ff", b"other=%7B%7D", b"payload=[]", b"&".join([b"a=1"] * 20))
    for content_type, bodies in (("application/json", plain), (FORM, form)):
        for body in bodies:
            response = await client.post(body, Content_Type=content_type)
            assert (response.status_code, response.json()["code"]) == (400, "bad_input"), body[:50]
    assert await client.is_empty()


async def test_bodies_up_to_the_cap_of_github_are_accepted(client: WebhookClient) -> None:
    payload = workflow_job("queued") | {"filler": ""}
    payload["filler"] = "x" * (MAX_BODY_BYTES - len(json.dumps(payload)))
    body = json.dumps(payload).encode()
    assert len(body) == MAX_BODY_BYTES
    assert (await client.post(body)).json()["result"] == "new"
    larger = await client.post(body + b" ")
    assert (larger.status_code, larger.json()["code"]) == (413, "body_too_large")


async def test_streamed_bodies_have_the_same_cap(client: WebhookClient) -> None:
    """Without a Content-Length, the cap is found while reading."""
    chunk = b"x" * (1 << 20)

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(64):
            yield chunk

    headers = {"X-Hub-Signature-256": sign(chunk), "X-GitHub-Event": "workflow_job"}
    response = await client.http.post(PATH, content=endless(), headers=headers)
    assert response.status_code == 413

    async def streamed() -> AsyncIterator[bytes]:
        yield QUEUED[:100]
        yield QUEUED[100:]

    headers["X-Hub-Signature-256"] = sign(QUEUED)
    assert (await client.http.post(PATH, content=streamed(), headers=headers)).json()["result"] == "new"


# Events that describe no job


def without(payload: dict[str, Any], *path: str) -> dict[str, Any]:
    inner = payload
    for name in path[:-1]:
        inner = inner[name]
    del inner[path[-1]]
    return payload


async def test_ping_and_unknown_events(client: WebhookClient) -> None:
    assert await client.send({"zen": "Keep it simple.", "hook_id": 1}, X_GitHub_Event="ping") == "pong"
    for event in ("workflow_run", "push", "", "workflow_job\u00e9", "x" * 500):
        assert await client.send(workflow_job("queued"), X_GitHub_Event=event) == "ignored"
    assert await client.is_empty()


WITHOUT_A_JOB: list[dict[str, Any]] = [
    {},
    {"action": "queued"},
    workflow_job("queued") | {"workflow_job": None},
    workflow_job("queued") | {"workflow_job": []},
    workflow_job("queued") | {"repository": None},
    workflow_job("queued") | {"action": None},
    workflow_job("queued") | {"action": ["queued"]},
    workflow_job("queued") | {"action": {"a": 1}},
    workflow_job("queued") | {"action": "renamed"},
    *(workflow_job("queued", id=wrong) for wrong in (None, "7", True, 7.0, -7, 0, 1 << 63, 10**30, 10**400)),
    without(workflow_job("queued"), "repository", "full_name"),
]


async def test_payloads_without_a_job_are_acknowledged(client: WebhookClient) -> None:
    """An error would make GitHub show a failed delivery, and the recovery send it again."""
    for payload in WITHOUT_A_JOB:
        assert await client.send(payload) == "ignored", payload
    assert await client.is_empty()


ODD_FIELDS: list[dict[str, Any]] = [
    {"run_id": None},
    {"run_id": 10**30, "run_attempt": -(10**30), "runner_id": 10**30},
    {"run_id": 1.5, "run_attempt": "2", "name": 3, "html_url": None, "status": 4},
    {"created_at": "never"},
    {"created_at": 10**30},
    {"created_at": "9999-12-31T23:59:59Z"},
    {"created_at": "0001-01-01T00:00:00+14:00"},
    {"name": "x" * 100_000},
    {"name": "a\u0000b\U0001f600", "html_url": "\u0000"},
    {"labels": [*LABELS, None, 7, {"name": "x"}, ""]},
    {"labels": [*LABELS] * 300},
    {"conclusion": 5, "runner_name": 5},
]


async def test_odd_fields_do_no_harm(client: WebhookClient) -> None:
    for job_id, fields in enumerate(ODD_FIELDS, 1):
        results = [await client.send(workflow_job(action, job_id, **fields)) for action in ACTIONS]
        assert results == ["new", "changed", "changed"], fields
        assert await client.state(job_id) == "completed"


async def test_half_of_a_surrogate_pair_does_not_cost_a_job_its_runner(client: WebhookClient) -> None:
    assert await client.send(workflow_job("queued", name="build \ud83d end")) == "new"
    job = await client.site.ingest.jobs.get(7)
    assert job is not None
    assert job.job_name == "build \N{REPLACEMENT CHARACTER} end"


# Outages


async def test_unavailable_store_is_a_503_and_the_redelivery_works(client: WebhookClient) -> None:
    client.watched.failing = StoreUnavailable("The store is away.")
    response = await client.post(QUEUED, X_GitHub_Delivery="guid")
    assert (response.status_code, response.json()["code"]) == (503, "store_unavailable")
    client.watched.failing = None
    assert await client.is_empty()
    assert (await client.post(QUEUED, X_GitHub_Delivery="guid")).json()["result"] == "new"
    assert await client.tickets() == [7]


async def test_store_that_fails_halfway_loses_nothing(client: WebhookClient) -> None:
    """The job is stored and its ticket is not: the plan adds it."""
    client.watched.failing, client.watched.failing_verbs = StoreUnavailable("The store is away."), ("insert",)
    assert (await client.post(QUEUED)).status_code == 503
    client.watched.failing = None
    assert (await client.state(), await client.tickets()) == ("queued", [])
    assert await client.send(workflow_job("queued")) == "unchanged"
    assert await client.planned_in(seconds=10) == [7]
