"""Every route of the server: the API, who may come in, and what it tells of itself."""

from __future__ import annotations

from jobyard.doors.http import audit, events, health, login, metrics, output, tokens
from jobyard.doors.http.every import API
from jobyard.doors.http.route import Routes


def all_routes() -> list[Routes]:
    return [
        *API,
        tokens.ROUTES,
        audit.ROUTES,
        login.ROUTES,
        events.ROUTES,
        output.ROUTES,
        health.ROUTES,
        metrics.ROUTES,
    ]
