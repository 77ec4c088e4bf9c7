"""The login page of browsers: a token once, then a session; plain HTML that works without scripts."""

from __future__ import annotations

from html import escape
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from jobyard.operations.sessions import csrf_token, csrf_token_fits
from jobyard.server.auth import (
    TokenAuthenticator,
    address_of,
    cookie_name,
    require_own_page,
    session_of,
)
from jobyard.server.parsing import read_body
from jobyard.server.problems import HttpError
from jobyard.server.rate_limit import too_many
from jobyard.server.route import RequestContext, Routes

ROUTES = Routes("browser")

HOME = "/login"  # it shows who one is and where to go
MAX_FORM_BYTES = 4096
FORM = "application/x-www-form-urlencoded"

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} · jobyard</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/login.css">
</head>
<body>
<main>
<h1>jobyard</h1>
{content}
</main>
</body>
</html>
"""

LOGIN = """<form method="post" action="/login">
{complaint}
<label for="token">API token</label>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>
<button type="submit">Log in</button>
<p>Make a token with <code>jobyard tokens create</code>.</p>
</form>"""

WELCOME = """<p>You are logged in as <strong>{name}</strong> ({role}).</p>
<p><a href="/docs">The API</a> · <a href="/health">Health</a></p>
<form method="post" action="/logout">
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


@ROUTES.add("GET", "/login", None, "The login page for browsers.", media_type="text/html", refusals=(503,))
async def login_page(context: RequestContext) -> Response:
    session = session_of(context.request)
    authenticator = context.dependencies.authenticator
    principal = (
        await authenticator.sessions.find(session)
        if session and isinstance(authenticator, TokenAuthenticator)
        else None
    )
    if session is None or principal is None:
        return form()
    content = WELCOME.format(name=escape(principal.name), role=principal.role, csrf=csrf_token(session))
    return HTMLResponse(PAGE.format(title="Logged in", content=content))


@ROUTES.add("GET", "/login.css", None, "The style of the login page.", media_type="text/css")
async def login_style(context: RequestContext) -> Response:
    return Response(STYLE, media_type="text/css", headers={"Cache-Control": "max-age=3600"})


@ROUTES.add(
    "POST",
    "/login",
    None,
    "Open a browser session with a token.",
    status=303,
    media_type="text/html",
    also=((401, "The form again: the token is not known."),),
    refusals=(400, 403, 413, 415, 429, 503),
    form=("token",),
)
async def login(context: RequestContext) -> Response:
    request, authenticator = context.request, context.dependencies.authenticator
    require_own_page(request)
    if not isinstance(authenticator, TokenAuthenticator):
        return RedirectResponse(HOME, 303)
    principal = await authenticator.tokens.authenticate((await field_of(request, "token")).strip())
    if principal is None:
        # Whoever holds a good token is let in whatever others at this address do: it may be a proxy's.
        seconds = authenticator.failures.take(address_of(request))
        if seconds > 0:
            raise too_many(seconds, "Too many wrong logins came from this address.")
        return form("This token is not known here, or no longer.", 401)
    session = await authenticator.sessions.open(principal)
    await context.dependencies.audit.record(principal, "session.open")
    answer = RedirectResponse(HOME, 303)
    answer.set_cookie(
        cookie_name(request),
        session,
        max_age=int(authenticator.sessions.seconds),
        path="/",
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return answer


@ROUTES.add(
    "POST",
    "/logout",
    None,
    "End the browser session.",
    status=303,
    media_type="text/html",
    refusals=(400, 403, 413, 415, 503),
    form=("csrf_token",),
)
async def logout(context: RequestContext) -> Response:
    request, authenticator = context.request, context.dependencies.authenticator
    session = session_of(request)
    answer = RedirectResponse("/login", 303)
    if session is None or not isinstance(authenticator, TokenAuthenticator):
        return answer
    require_own_page(request)
    given = request.headers.get("x-csrf-token") or await field_of(request, "csrf_token")
    if not csrf_token_fits(session, given):
        raise HttpError(403, "csrf", "The logout needs the session's X-CSRF-Token, or csrf_token in the form.")
    principal = await authenticator.sessions.find(session)
    await authenticator.sessions.close(session)
    if principal is not None:
        await context.dependencies.audit.record(principal, "session.close")
    answer.delete_cookie(cookie_name(request), "/", secure=request.url.scheme == "https", httponly=True)
    return answer


def form(complaint: str = "", status: int = 200) -> Response:
    told = f'<p role="alert">{escape(complaint)}</p>' if complaint else ""
    return HTMLResponse(PAGE.format(title="Log in", content=LOGIN.format(complaint=told)), status)


async def field_of(request: Request, name: str) -> str:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != FORM:
        raise HttpError(415, "not_a_form", f"Send the form as Content-Type: {FORM}.")
    data = await read_body(request, MAX_FORM_BYTES)
    try:
        fields = parse_qs(data.decode(), max_num_fields=10, strict_parsing=False)
    except ValueError:
        raise HttpError(400, "not_a_form", "The form cannot be read.") from None
    return fields.get(name, [""])[0]
