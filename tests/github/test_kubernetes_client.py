"""The Kubernetes client over real sockets: requests, watches, credentials and failures of the connection."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.github.http_script import Exchange, Handler, serving
from tests.servers.certificate import Certificate

from jobyard.errors import ConfigurationError
from jobyard.github.kubernetes import client as client_module
from jobyard.github.kubernetes.api import KubernetesError, KubernetesUnavailable, WatchEvent
from jobyard.github.kubernetes.client import KubernetesClient
from jobyard.github.kubernetes.credentials import FileCredentials, Value
from jobyard.github.kubernetes.kubeconfig import ClusterAccess, find_access

POD = {"metadata": {"name": "a", "uid": "u1", "resourceVersion": "7"}}


def access(server: str, token: Value | None = None) -> ClusterAccess:
    return ClusterAccess(server, FileCredentials(token or Value(b"t1"), Value(), Value()), Value())


@asynccontextmanager
async def connected(handler: Handler, *, timeout: float = 5.0) -> AsyncIterator[KubernetesClient]:
    async with serving(handler) as url:
        client = KubernetesClient(access(url), timeout_seconds=timeout)
        try:
            yield client
        finally:
            await client.close()


def status(code: int, reason: str, message: str, **details: Any) -> dict[str, Any]:
    return {"kind": "Status", "code": code, "reason": reason, "message": message, "details": details}


# Requests


async def test_a_create_is_authenticated_and_has_a_deadline_on_the_server() -> None:
    async def handler(exchange: Exchange) -> None:
        seen.append(exchange.request)
        await exchange.answer(201, POD)

    seen: list[Any] = []
    async with connected(handler) as client:
        assert await client.create("pods", "runners", {"a": 1}) == POD
        await client.create("pods", "runners", {"a": 1}, dry_run=True)
    assert (seen[0].method, seen[0].path, seen[0].body) == ("POST", "/api/v1/namespaces/runners/pods", {"a": 1})
    assert seen[0].headers["authorization"] == "Bearer t1"
    assert seen[0].query == {"timeout": "5s", "fieldManager": "jobyard"}
    assert seen[1].query["dryRun"] == "All"


async def test_delete_and_patch() -> None:
    async def handler(exchange: Exchange) -> None:
        seen.append(exchange.request)
        await exchange.answer(200, POD)

    seen: list[Any] = []
    async with connected(handler) as client:
        await client.delete("pods", "runners", "a", uid="u1", grace_seconds=0)
        await client.delete("secrets", "runners", "a")
        await client.patch("leases", "runners", "leader", {"spec": {"holderIdentity": "x"}})
    assert seen[0].body["preconditions"] == {"uid": "u1"}
    assert seen[0].body["gracePeriodSeconds"] == 0
    assert "preconditions" not in seen[1].body
    assert "gracePeriodSeconds" not in seen[1].body
    assert seen[2].path == "/apis/coordination.k8s.io/v1/namespaces/runners/leases/leader"
    assert seen[2].headers["content-type"] == "application/merge-patch+json"


async def test_a_list_has_all_pages_and_starts_over_when_its_token_expires() -> None:
    async def handler(exchange: Exchange) -> None:
        token = exchange.request.query.get("continue")
        asked.append(token)
        if token == "old":
            await exchange.answer(410, status(410, "Expired", "too old"))
        else:
            names, following = {None: ("a", "old" if len(asked) == 1 else "new"), "new": ("b", "")}[token]
            items = [{"metadata": {"name": each}} for each in names]
            await exchange.answer(200, {"items": items, "metadata": {"resourceVersion": "9", "continue": following}})

    asked: list[str | None] = []
    async with connected(handler) as client:
        found = await client.list("pods", "runners", "app=x")
    assert [each["metadata"]["name"] for each in found.items] == ["a", "b"]
    assert found.resource_version == "9"
    assert asked == [None, "old", None, "new"]


async def test_an_error_has_the_words_of_the_api() -> None:
    async def handler(exchange: Exchange) -> None:
        answers = {
            "quota": (403, status(403, "Forbidden", "exceeded quota: q"), {}),
            "wait": (429, status(429, "TooManyRequests", "later", retryAfterSeconds=3), {}),
            "header": (503, status(503, "ServiceUnavailable", "later"), {"Retry_After": "4"}),
            "proxy": (502, "<html>Bad gateway</html>", {}),
        }
        code, body, headers = answers[exchange.request.path.rpartition("/")[2]]
        await exchange.answer(code, body, **headers)

    async with connected(handler) as client:
        with pytest.raises(KubernetesError, match="exceeded quota: q") as caught:
            await client.get("pods", "runners", "quota")
        assert (caught.value.status, caught.value.reason, caught.value.is_temporary) == (403, "Forbidden", False)
        with pytest.raises(KubernetesError) as caught:
            await client.get("pods", "runners", "wait")
        assert (caught.value.retry_after_seconds, caught.value.may_have_taken_effect) == (3, False)
        with pytest.raises(KubernetesError) as caught:
            await client.get("pods", "runners", "header")
        assert (caught.value.retry_after_seconds, caught.value.may_have_taken_effect) == (4, True)
        with pytest.raises(KubernetesError, match="Bad gateway") as caught:
            await client.get("pods", "runners", "proxy")
        assert caught.value.is_temporary


async def test_a_server_that_hangs_or_cuts_may_have_done_it() -> None:
    async def handler(exchange: Exchange) -> None:
        if exchange.request.path.endswith("/hang"):
            await asyncio.Event().wait()
        exchange.cut()

    async with connected(handler, timeout=0.2) as client:
        for name in ("hang", "cut"):
            with pytest.raises(KubernetesUnavailable) as caught:
                await client.get("pods", "runners", name)
            assert caught.value.may_have_taken_effect


async def test_a_server_that_is_away_has_not_done_it() -> None:
    async with serving(lambda _: asyncio.sleep(0)) as url:
        pass
    client = KubernetesClient(access(url))
    with pytest.raises(KubernetesUnavailable) as caught:
        await client.create("pods", "runners", POD)
    assert not caught.value.may_have_taken_effect
    await client.close()


async def test_a_body_that_is_not_json() -> None:
    async with connected(lambda exchange: exchange.answer(200, "hello")) as client:
        with pytest.raises(KubernetesUnavailable, match="not JSON"):
            await client.get("pods", "runners", "a")


async def test_reviews() -> None:
    async def handler(exchange: Exchange) -> None:
        spec = exchange.request.body["spec"]
        seen.append((exchange.request.path.rpartition("/")[2], spec))
        await exchange.answer(201, {"status": {"allowed": True, "authenticated": True}})

    seen: list[Any] = []
    async with connected(handler) as client:
        assert await client.self_subject_access_review("runners", "update", "leases")
        assert (await client.token_review("abc", ["jobyard"]))["authenticated"]
    attributes = {"namespace": "runners", "verb": "update", "resource": "leases", "group": "coordination.k8s.io"}
    assert seen == [
        ("selfsubjectaccessreviews", {"resourceAttributes": attributes}),
        ("tokenreviews", {"token": "abc", "audiences": ["jobyard"]}),
    ]


# Watches


def line(type: str, version: str = "8", **more: Any) -> bytes:
    return json.dumps({"type": type, "object": {"metadata": {"resourceVersion": version}, **more}}).encode() + b"\n"


async def follow(client: KubernetesClient, seconds: float = 5.0) -> list[WatchEvent]:
    events: list[WatchEvent] = []
    async with client.watch("pods", "runners", "7", "app=x", seconds) as stream:
        try:
            async for event in stream:
                events.append(event)  # noqa: PERF401 - those before a failure count
        except KubernetesError as error:
            events.append(WatchEvent("failed", {"error": error}))
    return events


async def test_a_watch_yields_each_line_however_it_is_cut_into_chunks() -> None:
    async def handler(exchange: Exchange) -> None:
        seen.append(exchange.request.query)
        await exchange.begin_stream()
        data = line("ADDED", text="ünïcode") + line("BOOKMARK", "9")
        for at in range(0, len(data), 7):
            await exchange.chunk(data[at : at + 7])
        await exchange.end_stream()

    seen: list[dict[str, str]] = []
    async with connected(handler) as client:
        events = await follow(client)
    assert [each.type for each in events] == ["ADDED", "BOOKMARK"]
    assert events[0].object["text"] == "ünïcode"
    assert seen[0] == {
        "watch": "1",
        "resourceVersion": "7",
        "allowWatchBookmarks": "true",
        "timeoutSeconds": "5",
        "labelSelector": "app=x",
    }


BROKEN = {"garbage": b"garbage\n", "encoding": b'{"type": "ADDED", "object": {"a": "\xff"}}\n'}


@pytest.mark.parametrize("how", ["cut", "end", *BROKEN])
async def test_a_watch_that_is_cut_within_a_line_fails_after_the_whole_lines(how: str) -> None:
    async def handler(exchange: Exchange) -> None:
        await exchange.begin_stream()
        await exchange.chunk(line("ADDED") + BROKEN.get(how, line("MODIFIED")[:20]))
        await exchange.end_stream() if how != "cut" else exchange.cut()

    async with connected(handler) as client:
        events = await follow(client)
    assert [each.type for each in events] == ["ADDED", "failed"]
    assert isinstance(events[-1].object["error"], KubernetesUnavailable)


async def test_a_half_open_watch_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def handler(exchange: Exchange) -> None:
        await exchange.begin_stream()
        await exchange.chunk(line("ADDED"))
        await asyncio.Event().wait()

    monkeypatch.setattr(client_module, "WATCH_MARGIN_SECONDS", 0.1)
    async with connected(handler) as client:
        events = await follow(client, seconds=0.2)
    assert [each.type for each in events] == ["ADDED", "failed"]


async def test_a_watch_that_is_rejected() -> None:
    async with connected(lambda exchange: exchange.answer(410, status(410, "Expired", "too old"))) as client:
        with pytest.raises(KubernetesError) as caught:
            await follow(client)
    assert caught.value.status == 410


async def test_a_line_without_end_is_not_kept_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    async def handler(exchange: Exchange) -> None:
        await exchange.begin_stream()
        while True:
            await exchange.chunk(b"x" * 1000)

    monkeypatch.setattr(client_module, "LONGEST_LINE", 10_000)
    async with connected(handler) as client:
        assert [each.type for each in await follow(client)] == ["failed"]


# Credentials


class Guarded:
    """Accepts one token."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.seen: list[str] = []

    async def __call__(self, exchange: Exchange) -> None:
        self.seen.append(exchange.request.headers.get("authorization", ""))
        is_valid = self.seen[-1] == f"Bearer {self.token}"
        await exchange.answer(*((200, POD) if is_valid else (401, status(401, "Unauthorized", "Unauthorized"))))


async def test_the_token_of_a_service_account_is_read_again_when_it_changes(tmp_path: Path) -> None:
    guarded = Guarded("t1")
    async with serving(guarded) as url:
        host, port = url.removeprefix("http://").split(":")
        (tmp_path / "token").write_text("t1\n")
        (tmp_path / "namespace").write_text("ci\n")
        found = find_access(
            environment={"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}, service_account=tmp_path
        )
        assert (found.server, found.namespace) == (f"https://{host}:{port}", "ci")
        client = KubernetesClient(found._replace(server=url, authority=Value()))
        await client.get("pods", "runners", "a")
        replaced = tmp_path / "new"
        replaced.write_text("t2")
        replaced.rename(tmp_path / "token")
        guarded.token = "t2"
        await client.get("pods", "runners", "a")
        assert guarded.seen == ["Bearer t1", "Bearer t2"]
        guarded.token = "t3"
        with pytest.raises(KubernetesError) as caught:
            await client.get("pods", "runners", "a")
        assert caught.value.status == 401
        assert caught.value.is_temporary
        await client.close()


def kubeconfig(folder: Path, server: str, user: dict[str, Any], **cluster: Any) -> str:
    content = {
        "current-context": "here",
        "contexts": [
            {"name": "there", "context": {"cluster": "c", "user": "nobody"}},
            {"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "ci"}},
        ],
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": user}, {"name": "nobody", "user": {}}],
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(content))
    return str(path)


async def test_a_kubeconfig_with_a_token(tmp_path: Path) -> None:
    guarded = Guarded("t1")
    async with serving(guarded) as url:
        path = kubeconfig(tmp_path, url, {"token": "t1"})
        found = find_access(path)
        client = KubernetesClient(found)
        await client.get("pods", "runners", "a")
        await client.close()
        other = KubernetesClient(find_access(path, "there"))
        with pytest.raises(KubernetesError):
            await other.get("pods", "runners", "a")
        await other.close()
        (tmp_path / "t").write_text("t1")
        from_file = KubernetesClient(find_access(kubeconfig(tmp_path, url, {"tokenFile": "t"})))
        await from_file.get("pods", "runners", "a")
        await from_file.close()
    assert found.namespace == "ci"
    assert guarded.seen[:2] == ["Bearer t1", ""]


PLUGIN = """#!/bin/sh
echo x >> "$COUNTER"
printf '{"kind":"ExecCredential","status":{"token":"t%s"%s}}' "$(wc -l < "$COUNTER" | tr -d ' ')" "$EXPIRY"
test "$(printf %s "$KUBERNETES_EXEC_INFO" | grep -c '"interactive":false')" = 1
"""


def plugin(folder: Path, text: str, expiry: str = "") -> dict[str, Any]:
    program = folder / "plugin"
    program.write_text(text)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    variables = [{"name": "COUNTER", "value": str(folder / "counter")}, {"name": "EXPIRY", "value": expiry}]
    return {"exec": {"command": "./plugin", "apiVersion": "client.authentication.k8s.io/v1", "env": variables}}


async def test_a_credential_plugin_is_run_again_after_its_token_was_rejected(tmp_path: Path) -> None:
    guarded = Guarded("t1")
    async with serving(guarded) as url:
        client = KubernetesClient(find_access(kubeconfig(tmp_path, url, plugin(tmp_path, PLUGIN))))
        await client.get("pods", "runners", "a")
        await client.get("pods", "runners", "a")
        guarded.token = "t2"
        await asyncio.gather(*(client.get("pods", "runners", "a") for _ in range(5)))
        await client.close()
    assert (tmp_path / "counter").read_text() == "x\nx\n"


async def test_a_credential_plugin_is_run_again_when_its_token_expires(tmp_path: Path) -> None:
    guarded = Guarded("t1")
    async with serving(guarded) as url:
        user = plugin(tmp_path, PLUGIN, ',"expirationTimestamp":"2026-01-01T00:00:00Z"')
        client = KubernetesClient(find_access(kubeconfig(tmp_path, url, user)))
        await client.get("pods", "runners", "a")
        guarded.token = "t2"
        await client.get("pods", "runners", "a")
        await client.close()
    assert guarded.seen == ["Bearer t1", "Bearer t2"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("#!/bin/sh\necho 'not logged in' >&2\nexit 3\n", "exit code 3: not logged in"),
        ("#!/bin/sh\necho hello\n", "no valid ExecCredential"),
        ("#!/bin/sh\necho '{\"status\":{}}'\n", "neither a token nor a certificate"),
    ],
)
async def test_a_credential_plugin_that_fails(tmp_path: Path, text: str, says: str) -> None:
    client = KubernetesClient(find_access(kubeconfig(tmp_path, "http://127.0.0.1:1", plugin(tmp_path, text))))
    with pytest.raises(KubernetesUnavailable, match=says) as caught:
        await client.create("pods", "runners", POD)
    assert not caught.value.may_have_taken_effect
    await client.close()


async def test_a_credential_plugin_that_is_missing(tmp_path: Path) -> None:
    user = {"exec": {"command": "./missing", "installHint": "Install it."}}
    client = KubernetesClient(find_access(kubeconfig(tmp_path, "http://127.0.0.1:1", user)))
    with pytest.raises(KubernetesUnavailable, match="Install it"):
        await client.get("pods", "runners", "a")
    await client.close()


@pytest.mark.parametrize(
    ("user", "says"),
    [
        ({"auth-provider": {"name": "gcp"}}, "auth-provider"),
        ({"token": "t", "as": "admin"}, "uses as"),
        ({"client-certificate-data": "eA=="}, "without its key"),
        ({"client-certificate-data": "%%%", "client-key-data": "eA=="}, "not valid base64"),
        ({"exec": {"command": "x", "interactiveMode": "Always"}}, "terminal"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used(tmp_path: Path, user: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        find_access(kubeconfig(tmp_path, "http://127.0.0.1:1", user))


def test_a_kubeconfig_without_the_context(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, "http://127.0.0.1:1", {})
    with pytest.raises(ConfigurationError, match='no context "elsewhere"; it has: there, here'):
        find_access(path, "elsewhere")
    with pytest.raises(ConfigurationError, match="does not exist"):
        find_access(str(tmp_path / "none"))


def test_several_kubeconfigs_are_merged(tmp_path: Path) -> None:
    first = tmp_path / "first"
    first.write_text(yaml.safe_dump({"contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}]}))
    second = kubeconfig(tmp_path, "http://127.0.0.1:2", {"token": "t"})
    assert find_access(f"{first}:{second}", "x").server == "http://127.0.0.1:2"


# TLS


def encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


async def test_certificates_of_both_sides(tmp_path: Path) -> None:
    made = Certificate(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=made.authority)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(made.chain, made.key)
    inline = {"client-certificate-data": encoded(made.chain), "client-key-data": encoded(made.key)}
    files = {"client-certificate": "server.crt", "client-key": "server.key"}
    async with serving(lambda exchange: exchange.answer(200, POD), context) as url:
        for user, cluster, is_accepted in (
            (inline, {"certificate-authority-data": encoded(made.authority)}, True),
            (files, {"certificate-authority": "authority.crt"}, True),
            (files, {"insecure-skip-tls-verify": True}, True),
            (files, {"certificate-authority": "authority.crt", "tls-server-name": "localhost"}, True),
            (files, {"certificate-authority": "authority.crt", "tls-server-name": "elsewhere"}, False),
            (files, {}, False),
            ({}, {"certificate-authority": "authority.crt"}, False),
        ):
            client = KubernetesClient(find_access(kubeconfig(tmp_path, url, user, **cluster)))
            if is_accepted:
                assert await client.get("pods", "runners", "a") == POD
            else:
                with pytest.raises(KubernetesUnavailable):
                    await client.get("pods", "runners", "a")
            await client.close()


async def test_a_changed_certificate_is_used(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    old, new = Certificate(first), Certificate(second)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(new.chain, new.key)
    async with serving(lambda exchange: exchange.answer(200, POD), context) as url:
        path = kubeconfig(tmp_path, url, {"token": "t"}, **{"certificate-authority": "authority.crt"})
        (tmp_path / "authority.crt").write_bytes(old.authority.read_bytes())
        client = KubernetesClient(find_access(path))
        with pytest.raises(KubernetesUnavailable):
            await client.get("pods", "runners", "a")
        (tmp_path / "authority.crt").unlink()
        (tmp_path / "authority.crt").write_bytes(new.authority.read_bytes())
        assert await client.get("pods", "runners", "a") == POD
        await client.close()
