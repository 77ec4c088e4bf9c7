"""API tokens, and the principal of the current request."""

from __future__ import annotations

from importlib.metadata import version

import msgspec
from starlette.responses import Response

from jobyard.api.convert import time_text
from jobyard.api.schemas import access as schemas
from jobyard.domain.access import Permission, Principal
from jobyard.domain.redaction import HIDDEN_NAMES
from jobyard.operations.sessions import csrf_token
from jobyard.server.auth import TokenAuthenticator, session_of
from jobyard.server.problems import HttpError
from jobyard.server.route import RequestContext, Routes

ROUTES = Routes("access")


@ROUTES.add("GET", "/v1/me", Permission.READ, response=schemas.PrincipalView)
async def who_am_i(context: RequestContext) -> schemas.PrincipalView:
    """Get the principal of the request and its permissions."""
    session = session_of(context.request)
    dependencies, expires_at = context.dependencies, None
    if session is not None and isinstance(dependencies.authenticator, TokenAuthenticator):
        expires_at = await dependencies.authenticator.sessions.expires_at(session)
    view = schemas.principal_view(context.principal, None if session is None else csrf_token(session))
    return msgspec.structs.replace(
        view,
        session_expires_at=time_text(expires_at),
        version=version("jobyard"),
        store="" if context.principal.has_scope else dependencies.store.url,
        root_path=dependencies.settings.root_path,
        environment=dependencies.settings.environment,
        has_runners=dependencies.runners is not None,
        secret_names=HIDDEN_NAMES,
    )


@ROUTES.add("GET", "/v1/tokens", Permission.ADMINISTER, response=schemas.TokenList)
async def list_tokens(context: RequestContext) -> schemas.TokenList:
    """List tokens, without their secrets."""
    operations = context.operations
    visible = (info for info in await operations.tokens() if operations.covers(info.principal))
    return schemas.TokenList(tuple(map(schemas.token_view, visible)))


@ROUTES.add(
    "POST", "/v1/tokens", Permission.ADMINISTER, status=201, body=schemas.TokenRequest, response=schemas.TokenCreated
)
async def create_token(context: RequestContext) -> schemas.TokenCreated:
    """Create a token; its secret is only in this response."""
    wanted = context.body
    scope = {"queues": wanted.queues, "groups": wanted.groups, "kinds": wanted.kinds}
    requested = Principal(id="", name=wanted.name, role=wanted.role, **scope)
    if not context.operations.covers(requested):
        raise HttpError(403, "out_of_scope", "A token cannot create one with a wider scope than its own.")
    made = await context.operations.create_token(
        wanted.name, wanted.role, **scope, expire_seconds=wanted.expire_seconds
    )
    return schemas.token_created(*made)


@ROUTES.add(
    "POST",
    "/v1/tokens/{token_id}/rotate",
    Permission.ADMINISTER,
    body=schemas.RotateRequest,
    response=schemas.TokenCreated,
)
async def rotate_token(context: RequestContext) -> schemas.TokenCreated:
    """Give a token a new secret, which is only in this response."""
    token_id = context.path["token_id"]
    rotated = None
    if "\0" not in token_id:
        rotated = await context.operations.rotate_token(token_id, context.body.overlap_seconds)
    if rotated is None:
        raise HttpError(404, "token_not_found", f"Token {token_id} not found.")
    return schemas.token_created(*rotated)


@ROUTES.add("DELETE", "/v1/tokens/{token_id}", Permission.ADMINISTER, status=204, problems=(409,))
async def revoke_token(context: RequestContext) -> Response:
    """Revoke a token, effective within a second."""
    token_id = context.path["token_id"]
    if "\0" in token_id or not await context.operations.revoke_token(token_id):
        raise HttpError(404, "token_not_found", f"Token {token_id} not found.")
    context.dependencies.broadcaster.end_token(token_id)
    return Response(status_code=204)
