"""Login page for browsers: exchanges a token for a session. Plain HTML that works without scripts."""

from __future__ import annotations

import ipaddress
from html import escape
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from jobyard.domain.access import Principal
from jobyard.operations.sessions import csrf_token, csrf_token_fits
from jobyard.server.auth import (
    TokenAuthenticator,
    client_address,
    cookie_name,
    require_no_cross_site,
    require_same_origin,
    session_cookie,
)
from jobyard.server.parsing import read_body
from jobyard.server.problems import HttpError
from jobyard.server.route import RequestContext, Routes

ROUTES = Routes("browser")

HOME = "/"  # the dashboard
MAX_FORM_BYTES = 4096
FORM = "application/x-www-form-urlencoded"

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} · jobyard</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="login.css">
</head>
<body>
<main>
<h1>jobyard</h1>
{content}
</main>
</body>
</html>
"""

LOGIN = """<form method="post" action="login">
{alert}
<label for="token">API token</label>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>
<button type="submit">Log in</button>
<p>To create a token, run <code>jobyard tokens create NAME</code>.</p>
</form>"""

WELCOME = """<p>Logged in as <strong>{name}</strong> ({role}).</p>
<p><a href="docs">API documentation</a> · <a href="health">Health</a></p>
<form method="post" action="logout">
<input type="hidden" name="csrf_token" value="{csrf}">
<button type="submit">Log out</button>
</form>"""

STYLE = """:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { margin: 0; min-height: 100vh; display: grid; place-items: center; background: Canvas; color: CanvasText; }
main { width: min(22rem, calc(100vw - 3rem)); }
h1 { font-size: 1.5rem; margin: 0 0 1rem; }
label { display: block; margin-bottom: 0.25rem; }
input:not([type="hidden"]) { box-sizing: border-box; width: 100%; padding: 0.5rem; font: inherit;
  border: 1px solid GrayText; border-radius: 0.25rem; background: Field; color: FieldText; }
button { margin-top: 0.75rem; padding: 0.5rem 1rem; font: inherit; cursor: pointer; }
input:focus-visible, button:focus-visible { outline: 3px solid Highlight; outline-offset: 1px; }
[role="alert"] { border-left: 4px solid #c0392b; padding-left: 0.75rem; }
"""


@ROUTES.add("GET", "/login", None, media_type="text/html", problems=(503,))
async def login_page(context: RequestContext) -> Response:
    """The login page for browsers."""
    session = session_cookie(context.request)
    authenticator = context.dependencies.authenticator
    principal = (
        await authenticator.sessions.find(session)
        if session and isinstance(authenticator, TokenAuthenticator)
        else None
    )
    if session is None or principal is None:
        return login_form()
    content = WELCOME.format(name=escape(principal.name), role=principal.role, csrf=csrf_token(session))
    return HTMLResponse(PAGE.format(title="Logged in", content=content))


@ROUTES.add("GET", "/login.css", None, media_type="text/css")
async def login_style(context: RequestContext) -> Response:
    """The style sheet of the login page."""
    return Response(STYLE, media_type="text/css", headers={"Cache-Control": "max-age=3600"})


@ROUTES.add(
    "POST",
    "/login",
    None,
    status=303,
    media_type="text/html",
    other_statuses=((401, "The login form again: the token is wrong, revoked or expired."),),
    problems=(400, 403, 413, 415, 429, 503),
    form=("token",),
)
async def login(context: RequestContext) -> Response:
    """Open a browser session with a token."""
    request, authenticator = context.request, context.dependencies.authenticator
    require_same_origin(request)
    if not isinstance(authenticator, TokenAuthenticator):
        return RedirectResponse(HOME, 303)
    principal = await authenticator.tokens.authenticate((await form_field(request, "token")).strip())
    if principal is None:
        authenticator.reject(request, "Too many failed logins from this address.")
        return login_form("The token is wrong, revoked or expired.", 401)
    return await open_session(context, authenticator, principal)


@ROUTES.add(
    "GET",
    "/login/{code}",
    None,
    status=303,
    media_type="text/html",
    other_statuses=((401, "The login form: the link was used, has expired, or the request is not from this machine."),),
    problems=(403, 429, 503),
)
async def login_by_link(context: RequestContext) -> Response:
    """Open a browser session by a link that works once, for a minute, on this machine."""
    request, authenticator = context.request, context.dependencies.authenticator
    if not isinstance(authenticator, TokenAuthenticator):
        return RedirectResponse(HOME, 303)
    require_no_cross_site(request)
    is_local = is_loopback_address(client_address(request))
    principal = await authenticator.sessions.use_link(context.path["code"]) if is_local else None
    if principal is None:
        authenticator.reject(request, "Too many failed logins from this address.")
        return login_form("The link was used, or has expired. Log in with a token.", 401)
    return await open_session(context, authenticator, principal)


def is_loopback_address(address: str) -> bool:
    """
    >>> is_loopback_address("127.0.0.1"), is_loopback_address("10.0.0.1"), is_loopback_address("")
    (True, False, False)
    """
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


async def open_session(context: RequestContext, authenticator: TokenAuthenticator, principal: Principal) -> Response:
    request = context.request
    session = await authenticator.sessions.open(principal)
    await context.dependencies.operations.as_principal(principal).record("session.open")
    response = RedirectResponse(HOME, 303)
    response.set_cookie(
        cookie_name(request),
        session,
        max_age=int(authenticator.sessions.seconds),
        path="/",
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return response


@ROUTES.add(
    "POST",
    "/logout",
    None,
    status=303,
    media_type="text/html",
    problems=(400, 403, 413, 415, 503),
    form=("csrf_token",),
)
async def logout(context: RequestContext) -> Response:
    """End the browser session."""
    request, authenticator = context.request, context.dependencies.authenticator
    session = session_cookie(request)
    response = RedirectResponse("/login", 303)
    if session is None or not isinstance(authenticator, TokenAuthenticator):
        return response
    require_same_origin(request)
    given = request.headers.get("x-csrf-token") or await form_field(request, "csrf_token")
    if not csrf_token_fits(session, given):
        detail = "The CSRF token is missing or wrong. Send it as X-CSRF-Token, or as csrf_token in the form."
        raise HttpError(403, "csrf", detail)
    principal = await authenticator.sessions.find(session)
    await authenticator.sessions.close(session)
    context.dependencies.broadcaster.end_session(session)
    if principal is not None:
        await context.dependencies.operations.as_principal(principal).record("session.close")
    response.delete_cookie(cookie_name(request), "/", secure=request.url.scheme == "https", httponly=True)
    return response


def login_form(error: str = "", status: int = 200) -> Response:
    alert = f'<p role="alert">{escape(error)}</p>' if error else ""
    return HTMLResponse(PAGE.format(title="Log in", content=LOGIN.format(alert=alert)), status)


async def form_field(request: Request, name: str) -> str:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != FORM:
        raise HttpError(415, "not_a_form", f"Send the form as Content-Type: {FORM}.")
    data = await read_body(request, MAX_FORM_BYTES)
    try:
        fields = parse_qs(data.decode(), max_num_fields=10, strict_parsing=False)
    except ValueError:
        raise HttpError(400, "not_a_form", "The form data is malformed.") from None
    return fields.get(name, [""])[0]
