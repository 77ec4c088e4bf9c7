"""API tokens, and the principal of the current request."""

from __future__ import annotations

from starlette.responses import Response

from jobyard.api.schemas import access as schemas
from jobyard.domain.access import Permission, Principal
from jobyard.operations.sessions import csrf_token
from jobyard.operations.tokens import Tokens
from jobyard.server.auth import TokenAuthenticator, session_cookie
from jobyard.server.problems import HttpError
from jobyard.server.route import RequestContext, Routes

ROUTES = Routes("access")


@ROUTES.add("GET", "/v1/me", Permission.READ, response=schemas.PrincipalView)
async def who_am_i(context: RequestContext) -> schemas.PrincipalView:
    """Get the principal of the request and its permissions."""
    by_cookie = "authorization" not in context.request.headers
    session = session_cookie(context.request) if by_cookie else None
    return schemas.principal_view(context.principal, None if session is None else csrf_token(session))


@ROUTES.add("GET", "/v1/tokens", Permission.ADMINISTER, response=schemas.TokenList)
async def list_tokens(context: RequestContext) -> schemas.TokenList:
    """List tokens, without their secrets."""
    known = await tokens_of(context).list()
    visible = (info for info in known if covers(context.principal, info.principal))
    return schemas.TokenList(tuple(map(schemas.token_view, visible)))


@ROUTES.add(
    "POST", "/v1/tokens", Permission.ADMINISTER, status=201, body=schemas.TokenRequest, response=schemas.TokenCreated
)
async def create_token(context: RequestContext) -> schemas.TokenCreated:
    """Create a token; its secret is only in this response."""
    wanted = context.body
    requested = Principal(id="", name=wanted.name, role=wanted.role, queues=wanted.queues, groups=wanted.groups)
    if not covers(context.principal, requested):
        raise HttpError(403, "out_of_scope", "A token cannot create one with a wider scope than its own.")
    info, text = await tokens_of(context).create(
        wanted.name,
        wanted.role,
        wanted.queues,
        wanted.groups,
        wanted.expire_seconds,
        lambda other: covers(context.principal, other.principal),
    )
    view = schemas.token_view(info)
    shown = {"name": view.name, "role": view.role, "queues": view.queues, "groups": view.groups}
    details = {**shown, "expires_at": view.expires_at}
    await context.dependencies.audit.record(context.principal, "token.create", info.id, details)
    return schemas.token_created(info, text)


@ROUTES.add("DELETE", "/v1/tokens/{token_id}", Permission.ADMINISTER, status=204)
async def revoke_token(context: RequestContext) -> Response:
    """Revoke a token, effective within a second."""
    tokens = tokens_of(context)
    token_id = context.path["token_id"]
    found = None if "\0" in token_id else await tokens.holder(token_id)
    if found is None or not covers(context.principal, found) or not await tokens.revoke(found.id):
        raise HttpError(404, "token_not_found", f"Token {token_id} not found.")
    await context.audit("token.revoke", found.id, name=found.name, role=found.role)
    return Response(status_code=204)


def tokens_of(context: RequestContext) -> Tokens:
    """The tokens of the authenticator, so that a revocation clears its cache at once."""
    authenticator = context.dependencies.authenticator
    return authenticator.tokens if isinstance(authenticator, TokenAuthenticator) else Tokens(context.dependencies.store)


def covers(admin: Principal, other: Principal) -> bool:
    """Whether the scope of the administrator includes the scope of the other principal."""
    queues = not admin.queues or (bool(other.queues) and set(other.queues) <= set(admin.queues))
    groups = not admin.groups or (bool(other.groups) and set(other.groups) <= set(admin.groups))
    return queues and groups
