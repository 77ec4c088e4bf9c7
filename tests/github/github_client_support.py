"""A client of a scripted server, with a token or as a GitHub App."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from tests.github.scripted_server import Received, Reply, ScriptedServer, refused
from tests.support import PATIENCE_SECONDS

from jobyard.domain.runners.github_job import RunnerScope
from jobyard.github.client import GitHubAccess, GitHubClient

ACME = RunnerScope("acme")
TOKEN = "ghp_verysecret123"
RUNNERS = "/orgs/acme/actions/runners"
JITCONFIG = f"POST {RUNNERS}/generate-jitconfig"
MINTED = Reply(201, {"runner": {"id": 7, "name": "r"}, "encoded_jit_config": "aml0LXNlY3JldA=="})
JOB = {"id": 5, "run_id": 3, "run_attempt": 1, "status": "queued", "labels": ["linux", None], "runner_id": 0}


@asynccontextmanager
async def connected(
    server: ScriptedServer, timeout: float = PATIENCE_SECONDS, **access: Any
) -> AsyncIterator[GitHubClient]:
    given: dict[str, Any] = {"token": TOKEN} if "app_id" not in access else {}
    client = GitHubClient(GitHubAccess(api_url=server.url, **given, **access), timeout=timeout)
    await client.start()
    try:
        yield client
    finally:
        await client.stop()
        await client.stop()


@cache
def private_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def pem() -> str:
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL
    return private_key().private_bytes(encoding, form, serialization.NoEncryption()).decode()


def app(server: ScriptedServer, timeout: float = PATIENCE_SECONDS) -> Any:
    return connected(server, timeout, app_id=12, private_key=pem())


def in_seconds(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


class Tokens:
    """Installation tokens of a scripted App, numbered; only the latest is valid."""

    def __init__(self, server: ScriptedServer, lifetime: float = 3600.0, permissions: dict[str, str] | None = None):
        self.made = 0
        self.lifetime = lifetime
        self.permissions = permissions or {"organization_self_hosted_runners": "write", "actions": "read"}
        server.on["GET /orgs/acme/installation"] = Reply(200, {"id": 50, "target_type": "Organization"})
        server.on["POST /app/installations/50/access_tokens"] = self.create
        server.on[f"GET {RUNNERS}/7"] = self.guarded
        server.on[f"GET {RUNNERS}"] = self.guarded

    def create(self, request: Received) -> Reply:
        claims = jwt.decode(request.token, private_key().public_key(), algorithms=["RS256"])
        assert claims["iss"] == "12"
        self.made += 1
        data = {"token": f"ghs_{self.made}", "expires_at": in_seconds(self.lifetime), "permissions": self.permissions}
        return Reply(201, data)

    def guarded(self, request: Received) -> Reply:
        if request.token != f"ghs_{self.made}":
            return refused(401, "Bad credentials")
        return Reply(200, {"id": 7, "name": "r", "status": "online", "busy": False, "runners": []})
