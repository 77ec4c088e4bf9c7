"""Access at startup: which authenticator a server uses, and its first token.

Tokens are required, unless the server listens on loopback only and was started with --insecure.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
from typing import NamedTuple

from jobyard.config.sections import ServerSection
from jobyard.domain.access import Role
from jobyard.errors import BadOption, ConfigurationError
from jobyard.operations.local import LocalOperations
from jobyard.operations.sessions import Sessions
from jobyard.operations.tokens import Tokens
from jobyard.ports.store import Store
from jobyard.server.auth import TokenAuthenticator
from jobyard.server.dependencies import Authenticator, OpenAccess

log = logging.getLogger("jobyard.server")

# The only Host headers that an open server accepts, against DNS rebinding.
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
FIRST = "first"
GIVEN_NAME = "bootstrap"
ADMIN_TOKEN = "JOBYARD_ADMIN_TOKEN"  # noqa: S105  # the name of the variable


class Access(NamedTuple):
    authenticator: Authenticator
    is_open: bool
    first_token: str | None  # to be shown once


async def bootstrap_access(
    store: Store,
    listener: socket.socket,
    settings: ServerSection,
    *,
    insecure: bool,
    shows_first: bool = True,
    admin_token: str = "",
) -> Access:
    """Raise ConfigurationError for a server beyond loopback that is open or has no tokens.

    `admin_token` is the text of an admin token to create, if it was never created before.

    `shows_first`: the output is read by a person, so a first token is created and returned.
    """
    is_local = is_loopback(listener)
    address = listener.getsockname()[0]
    if insecure and not is_local:
        raise ConfigurationError(
            f"Cannot use --insecure on {address}: it gives everyone full access, so it works on loopback only. "
            "Omit it and create a token: jobyard tokens create NAME --role admin"
        )
    if insecure:
        return Access(OpenAccess(), True, None)
    tokens = Tokens(store)
    await create_admin_token(store, tokens, admin_token)
    first: str | None = None
    if not await tokens.list():
        if not is_local:
            raise ConfigurationError(
                f"Cannot listen on {address}: {store.url} has no tokens, and the address is not loopback. "
                "Create a token first: jobyard tokens create NAME --role admin"
            )
        if shows_first:
            _, first = await LocalOperations(store, tokens=tokens).create_token(FIRST, Role.ADMIN)
        else:
            log.warning("no tokens yet: all requests are rejected until jobyard tokens create NAME --role admin")
    return Access(TokenAuthenticator(tokens, Sessions(store, tokens), settings), False, first)


async def create_admin_token(store: Store, tokens: Tokens, text: str) -> None:
    if not text:
        return
    try:
        is_new = await tokens.create_given(text, GIVEN_NAME, Role.ADMIN)
    except BadOption as error:
        # The message does not contain the text.
        raise ConfigurationError(f"Cannot use the admin token of {ADMIN_TOKEN}: {error}") from error
    if is_new:
        token_id = text.split("_")[1]
        operations = LocalOperations(store, tokens=tokens)
        await operations.record("token.create", token_id, name=GIVEN_NAME, role=str(Role.ADMIN))
        log.info("created the admin token of %s", ADMIN_TOKEN)


async def login_link(access: Access, listener: socket.socket) -> str | None:
    """The path of a link that logs an admin in once, within a minute; None where no login is needed."""
    authenticator = access.authenticator
    if not isinstance(authenticator, TokenAuthenticator) or not is_loopback(listener):
        return None
    for info in await authenticator.tokens.list():
        if info.role is Role.ADMIN and not info.principal.has_scope:
            return f"/login/{await authenticator.sessions.create_link(info.id)}"
    return None


def is_loopback(listener: socket.socket) -> bool:
    return ipaddress.ip_address(listener.getsockname()[0].partition("%")[0]).is_loopback
