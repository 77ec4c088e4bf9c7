"""The OpenAPI document and the documentation page, served without assets from other hosts."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import msgspec
from starlette.responses import Response

from jobyard.server.route import RequestContext, Routes

ROUTES = Routes("about")


@cache
def static(name: str) -> bytes:
    return (files("jobyard.server") / "static" / name).read_bytes()


@ROUTES.add("GET", "/openapi.json", None, response=dict)
async def get_openapi(context: RequestContext) -> Response:
    """The OpenAPI 3.1 document."""
    return Response(msgspec.json.encode(context.request.app.state.openapi()), media_type="application/json")


@ROUTES.add("GET", "/docs", None, media_type="text/html")
async def get_docs(context: RequestContext) -> Response:
    """The documentation page."""
    return Response(static("docs.html"), media_type="text/html")


@ROUTES.add("GET", "/docs/docs.js", None, media_type="text/javascript")
async def get_docs_script(context: RequestContext) -> Response:
    """The script of the documentation page."""
    return Response(static("docs.js"), media_type="text/javascript")


@ROUTES.add("GET", "/docs/docs.css", None, media_type="text/css")
async def get_docs_style(context: RequestContext) -> Response:
    """The style sheet of the documentation page."""
    return Response(static("docs.css"), media_type="text/css")
