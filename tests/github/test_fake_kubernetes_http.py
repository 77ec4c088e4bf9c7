"""The fake Kubernetes over real HTTP: paths, streaming watches, tokens, broken connections, the control API."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.github.fake_cluster import NAMESPACE, Json, pod, secret
from tests.support import eventually

from jobyard.demo.fake_kubernetes import ApiFault, FakeKubernetes, Rule, Settings, User
from jobyard.demo.fake_kubernetes.server import serve

PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
SECRETS = f"/api/v1/namespaces/{NAMESPACE}/secrets"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
MERGE_PATCH = {"content-type": "application/merge-patch+json"}


@contextlib.asynccontextmanager
async def running(**options: Any) -> AsyncIterator[tuple[FakeKubernetes, httpx2.AsyncClient]]:
    defaults: Json = {"rng": random.Random(1), "namespaces": (NAMESPACE,)}
    model = FakeKubernetes(**{**defaults, **options})
    try:
        async with serve(model) as url, httpx2.AsyncClient(base_url=url, timeout=10) as client:
            yield model, client
    finally:
        await model.close()


async def next_events(lines: AsyncIterator[str], count: int) -> list[Json]:
    return [json.loads(await anext(lines)) for _ in range(count)]


async def test_the_life_of_a_secret() -> None:
    async with running() as (_, client):
        made = await client.post(SECRETS, json=secret("s", key="v"))
        assert (made.status_code, made.headers["content-type"]) == (201, "application/json")
        again = await client.post(SECRETS, json=secret("s", key="v"))
        assert (again.status_code, again.json()["reason"]) == (409, "AlreadyExists")
        patched = await client.patch(f"{SECRETS}/s", content=b'{"metadata":{"labels":{"a":"b"}}}', headers=MERGE_PATCH)
        assert patched.json()["metadata"]["labels"] == {"a": "b"}
        listed = await client.get(SECRETS, params={"labelSelector": "a=b", "limit": 5})
        assert [item["metadata"]["name"] for item in listed.json()["items"]] == ["s"]
        everywhere = await client.get("/api/v1/secrets")
        assert everywhere.json()["kind"] == "SecretList"
        wrong = await client.request("DELETE", f"{SECRETS}/s", json={"preconditions": {"uid": "other"}})
        assert wrong.status_code == 409
        gone = await client.delete(f"{SECRETS}/s")
        assert (gone.status_code, gone.json()["status"]) == (200, "Success")
        assert (await client.get(f"{SECRETS}/s")).status_code == 404


async def test_unknown_paths_methods_and_bodies() -> None:
    async with running() as (_, client):
        unknown = await client.get(f"/api/v1/namespaces/{NAMESPACE}/podz")
        assert (unknown.status_code, unknown.json()["kind"]) == (404, "Status")
        assert (await client.get("/apis/apps/v1/namespaces/x/pods")).status_code == 404
        assert (await client.post("/api/v1/pods", json=pod())).status_code == 405
        assert (await client.post(PODS, content=b"{", headers={"content-type": "application/json"})).status_code == 400
        assert (await client.patch(f"{PODS}/a", json={})).status_code == 415
        assert (await client.post(PODS, params={"dryRun": "Some"}, json=pod())).status_code == 422
        assert (await client.post(PODS, params={"dryRun": "All"}, json=pod())).status_code == 201
        assert (await client.get(f"{PODS}/a")).status_code == 404
        for path in ("/version", "/version/"):
            assert (await client.get(path)).json()["major"] == "1"
        assert (await client.get("/readyz")).text == "ok"


async def test_a_lease_is_created_by_put() -> None:
    async with running() as (_, client):
        lease = {"metadata": {"name": "m"}, "spec": {"holderIdentity": "a"}}
        assert (await client.put(f"{LEASES}/m", json=lease)).status_code == 201
        assert (await client.put(f"{LEASES}/m", json=lease)).status_code == 422
        assert (await client.get(f"{LEASES}/m")).json()["apiVersion"] == "coordination.k8s.io/v1"


async def test_a_watch_streams_each_event_as_a_line() -> None:
    async with running() as (model, client):
        revision = (await client.get(PODS)).json()["metadata"]["resourceVersion"]
        query = {"watch": "1", "resourceVersion": revision, "labelSelector": "app=x"}
        async with client.stream("GET", PODS, params=query) as response:
            lines = response.aiter_lines()
            await client.post(PODS, json=pod("other"))
            await client.post(PODS, json=pod("a", labels={"app": "x"}))
            seen: list[str] = []
            while not seen or seen[-1] != "Running":
                (event,) = await next_events(lines, 1)
                assert event["object"]["metadata"]["name"] == "a"
                seen.append(event["object"]["status"]["phase"])
            await client.delete(f"{PODS}/a", params={"gracePeriodSeconds": "0"})
            assert [event["type"] for event in await next_events(lines, 1)] == ["DELETED"]
            assert model.open_watches == 1
        await eventually(lambda: not model.open_watches)


async def test_a_watch_ends_with_its_time_out_after_a_bookmark() -> None:
    async with running() as (_, client):
        query = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": "1"}
        response = await client.get(PODS, params=query)
        (bookmark,) = [json.loads(line) for line in response.text.splitlines()]
        assert (bookmark["type"], bookmark["object"]["kind"]) == ("BOOKMARK", "Pod")


@pytest.mark.parametrize("variant", ["http", "event"])
async def test_a_compacted_watch(variant: Any) -> None:
    async with running(settings=Settings(gone_variant=variant)) as (_, client):
        await client.post(PODS, json=pod())
        await client.post("/_control/compact")
        response = await client.get(PODS, params={"watch": "1", "resourceVersion": "1"})
        body = response.json()
        if variant == "http":
            assert response.status_code == 410
        else:
            assert (response.status_code, body["type"]) == (200, "ERROR")
            body = body["object"]
        assert (body["code"], body["reason"]) == (410, "Expired")


async def test_a_watch_is_cut_in_the_middle_of_a_line() -> None:
    async with running() as (model, client):
        model.inject(ApiFault(kind="cut", seconds=0.1, times=1))
        received = b""
        with pytest.raises(httpx2.TransportError):
            async with client.stream("GET", PODS, params={"watch": "1"}) as response:
                async for chunk in response.aiter_bytes():
                    received += chunk
        assert received
        assert not received.endswith(b"\n")
        with pytest.raises(json.JSONDecodeError):
            json.loads(received)


async def test_responses_are_lost_or_never_come() -> None:
    async with running() as (model, client):
        model.inject(ApiFault(kind="lost_after", verb="create", times=1))
        with pytest.raises(httpx2.TransportError):
            await client.post(PODS, json=pod("lost"))
        assert (await client.get(f"{PODS}/lost")).status_code == 200
        model.inject(ApiFault(kind="hang_after", verb="create", times=1))
        with pytest.raises(httpx2.ReadTimeout):
            await client.post(PODS, json=pod("hung"), timeout=0.2)
        assert (await client.get(f"{PODS}/hung")).status_code == 200
        model.inject(ApiFault(kind="throttle", seconds=3, times=1))
        throttled = await client.get(PODS)
        assert (throttled.status_code, throttled.headers["retry-after"]) == (429, "3")


async def test_tokens_and_rules() -> None:
    rules = (Rule(verbs=("list", "watch"), resources=("pods",), namespace=NAMESPACE),)
    tokens = {"admin": User(name="admin"), "few": User(name="few", rules=rules)}
    async with running(tokens=tokens) as (_, client):

        def as_user(token: str) -> dict[str, str]:
            return {"authorization": f"Bearer {token}"}

        for headers in ({}, as_user("wrong")):
            refused = await client.get(PODS, headers=headers)
            assert (refused.status_code, refused.json()["reason"]) == (401, "Unauthorized")
        assert (await client.get(PODS, headers=as_user("few"))).status_code == 200
        assert (await client.get(f"{PODS}/a", headers=as_user("few"))).status_code == 403
        assert (await client.get(SECRETS, headers=as_user("admin"))).status_code == 200
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        asked = {"verb": "create", "resource": "pods", "namespace": NAMESPACE}
        for token, allowed in (("few", False), ("admin", True)):
            review = await client.post(path, json={"spec": {"resourceAttributes": asked}}, headers=as_user(token))
            assert (review.status_code, review.json()["status"]["allowed"]) == (201, allowed)


async def test_the_control_api() -> None:
    async with running() as (_, client):
        await client.post(PODS, json=pod())
        async with client.stream("GET", PODS, params={"watch": "1"}) as response:
            async for line in response.aiter_lines():
                if json.loads(line)["object"]["status"]["phase"] == "Running":
                    break
        state = (await client.get("/_control")).json()
        (shown,) = state["pods"]
        assert (shown["name"], shown["phase"], len(state["nodes"])) == ("a", "Running", 3)
        await client.post(f"/_control/pods/{NAMESPACE}/a/kill", json={"exit_code": 7})
        async with client.stream("GET", PODS, params={"watch": "1"}) as response:
            async for line in response.aiter_lines():
                if json.loads(line)["object"]["status"]["phase"] == "Failed":
                    break
        faults = {"api": [{"kind": "fail_before", "verb": "list", "status_code": 503, "times": 1}]}
        assert (await client.put("/_control/faults", json=faults)).status_code == 200
        assert (await client.get(PODS)).status_code == 503
        assert (await client.put("/_control/faults", json={"api": [{"kind": "unknown"}]})).status_code == 400
        lost = await client.post("/_control/nodes/node-1/lose", json={"vanish": True})
        assert [node["ready"] for node in lost.json()["nodes"]] == [False, True, True]
        assert (await client.post("/_control/pods/x/y/evict")).status_code == 404


async def test_it_runs_by_hand(tmp_path: Path) -> None:
    config = tmp_path / "kubeconfig"
    command = ["-m", "jobyard.demo.fake_kubernetes", "--token", "t0ken", "--kubeconfig", str(config)]
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        url = json.loads(await process.stdout.readline())["url"]
        written = json.loads(config.read_text("utf-8"))
        assert written["clusters"][0]["cluster"]["server"] == url
        token = written["users"][0]["user"]["token"]
        async with httpx2.AsyncClient(base_url=url, headers={"authorization": f"Bearer {token}"}, timeout=60) as client:
            assert (await client.get("/api/v1/namespaces/default")).json()["status"]["phase"] == "Active"
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 10) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
