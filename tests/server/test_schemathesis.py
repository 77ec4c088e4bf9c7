"""Schemathesis against the OpenAPI document: every response matches it."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest
from tests.server.support import announce_languages, api_server, serving
from tests.support import ROOT

from jobyard.config.sections import ServerSection
from jobyard.server.auth import TokenAuthenticator
from jobyard.server.rate_limit import TokenBuckets
from jobyard.server.routes.table import ALL_ROUTES

# A request that matches the schema may still be rejected: an unknown page token, both ids and a filter.
NOT_TOLD_BY_A_SCHEMA = "positive_data_acceptance"
UNHURRIED = ServerSection(requests_per_second=1e9, request_burst=10**9)
IS_SOAK = bool(os.environ.get("JOBYARD_SOAK"))
EXAMPLES = "60" if IS_SOAK else "3"
PHASES = "examples,coverage,fuzzing,stateful" if IS_SOAK else "examples,fuzzing,stateful"


async def at_once(job_id: str, timeout_seconds: float) -> None: ...


async def test_responses_match_the_openapi_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with api_server(UNHURRIED, ALL_ROUTES) as api, serving(api.app) as url:
        assert isinstance(api.authenticator, TokenAuthenticator)
        api.authenticator.failures = TokenBuckets(1e9, 1e9)  # it sends many wrong tokens
        await announce_languages(api.store)
        monkeypatch.setattr(api.store, "wait_for_end", at_once)  # no worker runs, so a wait would only take time
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "schemathesis.cli", "run", f"{url}/openapi.json"),
            *("--header", f"Authorization: Bearer {await api.token('admin')}"),
            *("--exclude-checks", NOT_TOLD_BY_A_SCHEMA),
            *("--exclude-path-regex", "/(events|output)$"),  # streams have no end
            *("--max-examples", EXAMPLES, "--seed", "1", "--generation-deterministic"),
            *("--phases", PHASES),
            *("--request-timeout", "30", "--no-color"),
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said = (await process.communicate())[0].decode()
    assert process.returncode == 0, said
    assert "Stateful" in said
