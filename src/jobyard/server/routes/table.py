"""Every route of the server: the API, who may come in, and what it tells of itself."""

from __future__ import annotations

from jobyard.server.route import Routes
from jobyard.server.routes import audit, events, health, login, metrics, tokens
from jobyard.server.routes import program_output as output
from jobyard.server.routes.api import API


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
