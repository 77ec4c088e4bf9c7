"""Every role against every route: a table, and a route without a row fails."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import httpx2 as httpx
import pytest
from tests.conformance.support import new
from tests.server.support import ApiServer, announce_languages, serving

from jobyard import server
from jobyard.domain.access import Role
from jobyard.ports.clock import SystemClock
from jobyard.server.route import Route, Routes
from jobyard.stores.memory import MemoryStore

ANYBODY = frozenset({"nobody", *Role})
ALL = frozenset(Role)
WATCHERS = ALL - {Role.SUBMITTER}  # roles that see more than their own jobs
SUBMITTERS = frozenset({Role.SUBMITTER, Role.OPERATOR, Role.ADMIN})
OPERATORS = frozenset({Role.OPERATOR, Role.ADMIN})
ADMINS = frozenset({Role.ADMIN})


class Row(NamedTuple):
    who: frozenset[str]
    body: Any = None


TABLE = {
    "POST /v1/jobs": Row(SUBMITTERS, {"kind": "a"}),
    "POST /v1/jobs/batch": Row(SUBMITTERS, {"jobs": [{"kind": "a"}]}),
    "GET /v1/jobs": Row(ALL),
    "GET /v1/jobs/{id}": Row(ALL),
    "GET /v1/jobs/{id}/explain": Row(ALL),
    "GET /v1/jobs/{id}/history": Row(ALL),
    "POST /v1/jobs/{id}/cancel": Row(SUBMITTERS),
    "POST /v1/jobs/{id}/retry": Row(OPERATORS),
    "POST /v1/jobs/{id}/run-now": Row(OPERATORS),
    "POST /v1/jobs/{id}/prioritise": Row(OPERATORS, {"priority": 1}),
    "POST /v1/jobs/{id}/signal": Row(OPERATORS, {"name": "go"}),
    "DELETE /v1/jobs/{id}": Row(OPERATORS),
    "POST /v1/jobs/actions": Row(SUBMITTERS, {"action": "cancel", "ids": ["a"]}),
    "GET /v1/dead-letters": Row(ALL),
    "POST /v1/dead-letters/redrive": Row(OPERATORS, {"ids": ["a"]}),
    "GET /v1/jobs/counts": Row(ALL),
    "POST /v1/jobs/{id}/clone": Row(OPERATORS, {}),
    "GET /v1/dead-letters/groups": Row(ALL),
    "GET /v1/operations": Row(WATCHERS),
    "POST /v1/operations": Row(OPERATORS, {"action": "cancel", "ids": ["a"]}),
    "GET /v1/operations/{operation_id}": Row(WATCHERS),
    "POST /v1/operations/{operation_id}/cancel": Row(OPERATORS),
    "GET /v1/configuration": Row(ADMINS),
    "GET /login/{code}": Row(frozenset()),
    "GET /": Row(ANYBODY),
    "GET /assets/{hash}/{name}": Row(ANYBODY),
    "GET /assets/{hash}/pages/{name}": Row(ANYBODY),
    "GET /v1/overview": Row(WATCHERS),
    "GET /v1/charts": Row(WATCHERS),
    "GET /v1/queues/{queue}/line": Row(WATCHERS),
    "GET /v1/queues": Row(WATCHERS),
    "GET /v1/queues/{queue}": Row(WATCHERS),
    "PATCH /v1/queues/{queue}": Row(OPERATORS, {}),
    "DELETE /v1/queues/{queue}/settings": Row(OPERATORS),
    "DELETE /v1/queues/{queue}": Row(OPERATORS),
    "POST /v1/queues/{queue}/pause": Row(OPERATORS),
    "POST /v1/queues/{queue}/resume": Row(OPERATORS),
    "POST /v1/queues/{queue}/drain": Row(OPERATORS),
    "GET /v1/queues/{queue}/groups": Row(WATCHERS),
    "PUT /v1/queues/{queue}/groups/{group}/limit": Row(OPERATORS, {"limit": 1}),
    "DELETE /v1/queues/{queue}/groups/{group}/limit": Row(OPERATORS),
    "POST /v1/queues/{queue}/groups/{group}/pause": Row(OPERATORS),
    "POST /v1/queues/{queue}/groups/{group}/resume": Row(OPERATORS),
    "GET /v1/schedules": Row(WATCHERS),
    "POST /v1/schedules": Row(OPERATORS, {"name": "nightly", "expression": "@daily", "kind": "a"}),
    "GET /v1/schedules/{schedule}": Row(WATCHERS),
    "PATCH /v1/schedules/{schedule}": Row(OPERATORS, {"expression": "@hourly"}),
    "DELETE /v1/schedules/{schedule}": Row(OPERATORS),
    "POST /v1/schedules/{schedule}/pause": Row(OPERATORS),
    "POST /v1/schedules/{schedule}/resume": Row(OPERATORS),
    "POST /v1/schedules/{schedule}/run": Row(OPERATORS),
    "GET /v1/schedules/{schedule}/next": Row(WATCHERS),
    "GET /v1/schedules/{schedule}/history": Row(WATCHERS),
    "GET /v1/cron/next": Row(ALL),
    "GET /v1/workers": Row(WATCHERS),
    "POST /v1/workers/{id}/quiet": Row(OPERATORS),
    "POST /v1/workers/{id}/stop": Row(OPERATORS),
    "GET /v1/kinds": Row(ALL),
    "GET /api/v2/jobs/running": Row(WATCHERS),
    "GET /api/v2/workflows": Row(ALL),
    "POST /api/v2/workflows/execute": Row(SUBMITTERS, {"workflow_id": "scan"}),
    "GET /api/v2/workflows/{id}": Row(ALL),
    "POST /api/v2/workflows/{id}/cancel": Row(SUBMITTERS),
    "GET /v1/runners/jobs": Row(WATCHERS),
    "GET /v1/runners/jobs/{job_id}": Row(WATCHERS),
    "POST /v1/runners/jobs/requeue": Row(OPERATORS, {"repo": "acme/shop", "job_id": 1}),
    "GET /v1/runners/pods": Row(WATCHERS),
    "GET /v1/runners/orgs": Row(WATCHERS),
    "POST /execute": Row(SUBMITTERS, {"language": "python", "source_code": "1"}),
    "POST /execute/batch": Row(SUBMITTERS, {"language": "python", "source_code": "1", "inputs": [""]}),
    "POST /execute/many": Row(SUBMITTERS, {"programs": [{"language": "python", "source_code": "1"}]}),
    "POST /jobs/{job_id}/input": Row(SUBMITTERS, {"text": "a"}),
    "POST /jobs/{job_id}/signal": Row(SUBMITTERS, {"signal": "INT"}),
    "GET /jobs/{job_id}": Row(ALL),
    "GET /jobs/{job_id}/output": Row(ALL),
    "GET /languages": Row(ALL),
    "GET /v1/events": Row(ALL),
    "GET /v1/jobs/{id}/events": Row(ALL),
    "GET /v1/me": Row(ALL),
    "GET /v1/tokens": Row(ADMINS),
    "POST /v1/tokens": Row(ADMINS, {"name": "new", "role": "viewer"}),
    "DELETE /v1/tokens/{token_id}": Row(ADMINS),
    "POST /v1/tokens/{token_id}/rotate": Row(ADMINS, {}),
    "GET /v1/audit": Row(ADMINS),
    "POST /runners/{runner}/configuration": Row(ANYBODY),  # so is the token of the runner
    "POST /webhooks/github": Row(ANYBODY),  # its signature is checked instead; runners are not configured here
    "GET /openapi.json": Row(ANYBODY),
    "GET /docs": Row(ANYBODY),
    "GET /docs/docs.js": Row(ANYBODY),
    "GET /docs/docs.css": Row(ANYBODY),
    "GET /livez": Row(ANYBODY),
    "GET /readyz": Row(ANYBODY),
    "GET /health": Row(ANYBODY),
    "GET /metrics": Row(WATCHERS),  # it counts all jobs
    "GET /login": Row(ANYBODY),
    "GET /login.css": Row(ANYBODY),
}
# Login forms: the token is in the form; without it the response is 401 or 403.
FORMS = {"POST /login", "POST /logout"}


def every_route() -> dict[str, tuple[Route, Routes]]:
    """The routes of all route modules, whether or not the table lists them."""
    found: dict[str, tuple[Route, Routes]] = {}
    for module in pkgutil.walk_packages(server.__path__, f"{server.__name__}."):
        for routes in vars(importlib.import_module(module.name)).values():
            if isinstance(routes, Routes):
                found.update({f"{route.method} {route.path}": (route, routes) for route in routes.all})
    return found


EVERY = every_route()


def test_every_route_has_a_row_and_every_row_a_route() -> None:
    assert set(EVERY) == set(TABLE) | FORMS


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    store = MemoryStore(SystemClock())
    await store.open()
    await announce_languages(store)
    yield ApiServer(store, list({id(routes): routes for _, routes in EVERY.values()}.values()))
    await store.close()


async def status(client: httpx.AsyncClient, route: Route, path: str, body: Any) -> int:
    async with client.stream(route.method, path, json=body) as response:
        if not route.is_stream or response.status_code != 200:
            await response.aread()
        return response.status_code


@pytest.mark.parametrize("name", TABLE)
async def test_roles_of_a_route(api: ApiServer, name: str) -> None:
    route, row = EVERY[name][0], TABLE[name]
    authenticate: set[str] = set()
    async with serving(api.app) as url:
        for who in sorted(ANYBODY):
            headers = {} if who == "nobody" else {"Authorization": f"Bearer {await api.token(who)}"}
            [job] = await api.store.insert([new(queue="mail", group="acme")])
            names = {"queue": "mail", "group": "acme", "token_id": "x", "worker": "x", "schedule": "x", "runner": "x"}
            names |= {"operation_id": "x", "code": "x", "hash": "x", "name": "x"}
            path = route.path.format(id=job.id, job_id=job.id, **names)
            async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as client:
                answered = await status(client, route, path, row.body)
            if answered == 401:
                assert who == "nobody" or "code" in route.path  # the link itself is the secret
            elif answered != 403:
                assert answered < 500
                authenticate.add(who)
    assert authenticate == row.who
