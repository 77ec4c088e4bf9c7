"""Upgrades of the Helm chart: generated secrets are kept, and pods are replaced when what they read changes."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from jobyard.operations.tokens import _TEXT as TOKEN
from tests.deploy.conftest import changed, example
from tests.deploy.helm import NAMESPACE, RELEASE, Outcome, Request, helm
from tests.deploy.objects import WORKLOADS, Object, of_kind, one, pod_template, secret_data

NAME = f"{RELEASE}-jobyard"


class FakeApi(BaseHTTPRequestHandler):
    """As much of the Kubernetes API as `lookup` of a Secret needs."""

    secrets: Mapping[str, Object] = {}

    def do_GET(self) -> None:
        resource = {"name": "secrets", "singularName": "secret", "namespaced": True, "kind": "Secret", "verbs": ["get"]}
        prefix = f"/api/v1/namespaces/{NAMESPACE}/secrets/"
        path = self.path.partition("?")[0]
        match path:
            case "/api":
                answer: Any = {"kind": "APIVersions", "versions": ["v1"]}
            case "/apis":
                answer = {"kind": "APIGroupList", "apiVersion": "v1", "groups": []}
            case "/api/v1":
                answer = {"kind": "APIResourceList", "groupVersion": "v1", "resources": [resource]}
            case "/version":
                answer = {"major": "1", "minor": "30", "gitVersion": "v1.30.0"}
            case _ if path.startswith(prefix):
                answer = self.secrets.get(path.removeprefix(prefix))
            case _:
                answer = None
        missing = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
        body = json.dumps(missing if answer is None else answer).encode()
        self.send_response(404 if answer is None else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        pass


@contextmanager
def fake_api(secrets: Mapping[str, Object]) -> Iterator[str]:
    handler = type("Handler", (FakeApi,), {"secrets": secrets})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def generated(outcome: Outcome) -> tuple[str, str]:
    assert outcome.error == ""
    token = secret_data(one(outcome.objects, "Secret", NAME))["admin-token"]
    return token, secret_data(one(outcome.objects, "Secret", f"{NAME}-redis"))["password"]


def checksums(outcome: Outcome) -> list[dict[str, str]]:
    return [pod_template(each)["metadata"]["annotations"] for each in of_kind(outcome.objects, *WORKLOADS)]


def test_generated_secrets_are_kept_by_upgrades(rendered: dict[str, Outcome]) -> None:
    first = rendered["minimal"]
    with fake_api({}) as api:
        (empty,) = helm([Request(example("minimal"), api=api)])
    assert generated(empty) != generated(first)  # Helm asked, and there was nothing yet
    there = {each["metadata"]["name"]: each for each in of_kind(first.objects, "Secret")}
    with fake_api(there) as api:
        upgrade, other = helm(
            [Request(example("minimal"), api=api), Request(changed({"redis": {"password": "mine"}}), api=api)]
        )
    assert generated(upgrade) == generated(first)
    assert checksums(upgrade) == checksums(first)  # so that no pod is replaced
    assert generated(other) == (generated(first)[0], "mine")
    assert all(new != old for new, old in zip(checksums(other), checksums(first), strict=True))


def test_generated_secrets_have_the_form_that_jobyard_reads(rendered: dict[str, Outcome]) -> None:
    token, password = generated(rendered["minimal"])
    assert TOKEN.fullmatch(token)
    assert len(password) >= 32 and password.isalnum()
    given = secret_data(one(rendered["app"].objects, "Secret", NAME))
    assert given["admin-token"] == example("app")["secrets"]["adminToken"]
    assert given["github-private-key"] == example("app")["secrets"]["githubPrivateKey"]
    assert given["webhook-secrets"].splitlines() == example("app")["secrets"]["webhookSecrets"]


def test_a_change_of_configuration_or_secrets_replaces_the_pods() -> None:
    fixed = {"secrets": {"adminToken": "jy_0123456789ab_exampleexampleexample1"}, "redis": {"password": "mine"}}
    changes: list[dict[str, Any]] = [
        {},
        {},
        {"runners": {"max_total": 7}},
        {"secrets": {"webhookSecrets": ["another"]}},
        {"redis": {"maxmemory": "1gb"}},
    ]
    outcomes = helm([Request(changed(fixed, change)) for change in changes])
    first, same, config, secrets, memory = (checksums(outcome) for outcome in outcomes)
    assert first == same
    # The Deployment, then Redis.
    assert (config[0] != first[0], config[1] != first[1]) == (True, False)
    assert (secrets[0] != first[0], secrets[1] != first[1]) == (True, False)
    assert (memory[0] != first[0], memory[1] != first[1]) == (False, True)
