"""The dashboard: one page at /, and its files."""

from __future__ import annotations

from starlette.responses import Response

from jobyard.dashboard.assets import load_assets
from jobyard.server.problems import HttpError
from jobyard.server.route import RequestContext, Routes

ROUTES = Routes("browser")
# The address of a file contains a hash of the content of all files.
FOR_EVER = "public, max-age=31536000, immutable"
REVALIDATE = "no-cache"


@ROUTES.add("GET", "/", None, media_type="text/html")
async def get_dashboard(context: RequestContext) -> Response:
    """The dashboard."""
    return Response(load_assets().page, media_type="text/html", headers={"Cache-Control": REVALIDATE})


@ROUTES.add("GET", "/assets/{hash}/{name}", None, media_type="text/javascript", problems=(404,))
async def get_asset(context: RequestContext) -> Response:
    """A script or style sheet of the dashboard."""
    return asset(context, context.path["name"])


@ROUTES.add("GET", "/assets/{hash}/pages/{name}", None, media_type="text/javascript", problems=(404,))
async def get_page_script(context: RequestContext) -> Response:
    """The script of a page of the dashboard."""
    return asset(context, f"pages/{context.path['name']}")


def asset(context: RequestContext, name: str) -> Response:
    assets = load_assets()
    found = assets.by_name.get(name)
    # Another hash belongs to another version: its modules must not be mixed with those of this one.
    if found is None or context.path["hash"] != assets.digest:
        raise HttpError(404, "not_found", "This version of the dashboard has no such file. Reload the page.")
    headers = {"Cache-Control": FOR_EVER, "Vary": "Accept-Encoding"}
    accepts = context.request.headers.get("accept-encoding", "")
    if "gzip" in accepts and found.compressed is not found.data:
        headers["Content-Encoding"] = "gzip"
        return Response(found.compressed, media_type=found.media_type, headers=headers)
    return Response(found.data, media_type=found.media_type, headers=headers)
