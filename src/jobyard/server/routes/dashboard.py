"""The dashboard: one page at /, and its files."""

from __future__ import annotations

from html import escape

from starlette.responses import Response

from jobyard.dashboard.assets import SESSION, STORE, load_assets
from jobyard.server.auth import TokenAuthenticator, client_address, session_cookie
from jobyard.server.problems import HttpError
from jobyard.server.route import RequestContext, Routes
from jobyard.server.routes.login import is_loopback_address

ROUTES = Routes("browser")
# The address of a file contains a hash of the content of all files.
FOR_EVER = "public, max-age=31536000, immutable"
REVALIDATE = "no-cache"
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")


@ROUTES.add("GET", "/", None, media_type="text/html")
async def get_dashboard(context: RequestContext) -> Response:
    """The dashboard."""
    page = load_assets().page.replace(SESSION, b"unknown" if may_have_session(context) else b"none")
    page = page.replace(STORE, escape(local_store(context)).encode())
    return Response(page, media_type="text/html", headers={"Cache-Control": REVALIDATE, "Vary": "Cookie"})


def local_store(context: RequestContext) -> str:
    """The URL of a store that is a file, for commands on the machine of the server; empty for callers elsewhere.

    The name of the host is compared as well, because a proxy on this machine is also a caller from it.
    """
    request, url = context.request, context.dependencies.store.url
    is_here = is_loopback_address(client_address(request)) and request.url.hostname in LOOPBACK_HOSTS
    return url if is_here and url.startswith("sqlite:") else ""


def may_have_session(context: RequestContext) -> bool:
    """Whether the page should ask who it is: without a cookie the answer is 401, which browsers log as an error."""
    request = context.request
    is_open = not isinstance(context.dependencies.authenticator, TokenAuthenticator)
    return is_open or session_cookie(request) is not None or "authorization" in request.headers


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
