"""The configuration of warm runners. They authenticate with tokens of their own, each valid for one runner."""

from __future__ import annotations

import re

from starlette.responses import Response

from jobyard.github import warm_delivery
from jobyard.server.problems import HttpError, invalid_token
from jobyard.server.route import RequestContext, Routes

ROUTES = Routes("webhooks")
NAME = re.compile(r"[a-z0-9-]{1,63}")
MAX_TOKEN = 200
# A configuration must not be kept on its way.
HEADERS = {"Cache-Control": "no-store"}


@ROUTES.add(
    "POST",
    "/runners/{runner}/configuration",
    None,
    response=str,
    media_type="text/plain",
    headers=(("Authorization", "Bearer and the token of the warm runner."),),
    other_statuses=((204, "The runner has no job yet; ask again."),),
    problems=(401, 404, 410, 503),
)
async def warm_runner_configuration(context: RequestContext) -> Response:
    """Get the configuration of a warm runner once it has a job, waiting up to 20 seconds for one."""
    services, name = context.dependencies.runners, context.path["runner"]
    if services is None or NAME.fullmatch(name) is None:
        raise unknown_runner()
    request, draining = context.request, context.dependencies.draining
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not 0 < len(token) <= MAX_TOKEN:
        raise wrong_token()

    async def is_connected() -> bool:
        return not draining.is_set() and not await request.is_disconnected()

    delivery = await services.warm.deliver(name, token, is_connected=is_connected)
    match delivery.status:
        case warm_delivery.OK:
            return Response(delivery.configuration, media_type="text/plain", headers=HEADERS)
        case warm_delivery.NOT_YET:
            return Response(status_code=204, headers=HEADERS)
        case warm_delivery.NOT_FOUND:
            raise unknown_runner()
        case warm_delivery.UNAUTHORIZED:
            raise wrong_token()
        case warm_delivery.UNAVAILABLE:
            detail = "GitHub does not register the runner now. Ask again."
            raise HttpError(503, "github_unavailable", detail, headers={"Retry-After": "1"})
    detail = "The configuration was sent before, or the runner is not wanted any more."
    raise HttpError(410, "runner_gone", detail)


def unknown_runner() -> HttpError:
    return HttpError(404, "not_found", "There is no warm runner of this name.")


def wrong_token() -> HttpError:
    return invalid_token("The token is not the one of this runner.")
