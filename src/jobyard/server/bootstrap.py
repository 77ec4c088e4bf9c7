"""Who may come in when a server starts: by tokens; open only on loopback, and only if asked to."""

from __future__ import annotations

import ipaddress
import logging
import socket
from typing import NamedTuple

from jobyard.domain.access import OWNER, Role
from jobyard.errors import ConfigurationError
from jobyard.operations.audit import Audit
from jobyard.operations.sessions import Sessions
from jobyard.operations.tokens import Tokens
from jobyard.ports.store import Store
from jobyard.server.auth import TokenAuthenticator
from jobyard.server.dependencies import Authenticator, OpenAccess, ServerSettings

log = logging.getLogger("jobyard.server")

# The names under which an open server answers: no other site's name may be made to point at it.
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
FIRST = "first"


class Entry(NamedTuple):
    authenticator: Authenticator
    is_open: bool
    first_token: str | None  # to be shown once


async def entry(
    store: Store, listener: socket.socket, settings: ServerSettings, *, insecure: bool, shows_first: bool = True
) -> Entry:
    """Refuses to be open, or to be without tokens, beyond loopback.

    `shows_first`: somebody can_see the first token; else it is not made.
    """
    is_local = is_loopback(listener)
    address = listener.getsockname()[0]
    if insecure and not is_local:
        raise ConfigurationError(
            f"--insecure lets everybody in, so it works on loopback only, not on {address}. "
            "Leave it out, and create a token: jobyard tokens create NAME --role admin"
        )
    if insecure:
        return Entry(OpenAccess(), True, None)
    tokens = Tokens(store)
    first: str | None = None
    if not await tokens.list():
        if not is_local:
            raise ConfigurationError(
                f"There is no token in {store.url}, so nothing listens on {address}, beyond this machine. "
                "Create one first: jobyard tokens create NAME --role admin"
            )
        if shows_first:
            info, first = await tokens.create(FIRST, Role.ADMIN)
            await Audit(store).record(OWNER, "token.create", info.id, {"name": info.name, "role": str(info.role)})
        else:
            log.warning("there is no token yet, so nobody can come in: jobyard tokens create NAME --role admin")
    return Entry(TokenAuthenticator(tokens, Sessions(store, tokens), settings), False, first)


def is_loopback(listener: socket.socket) -> bool:
    return ipaddress.ip_address(listener.getsockname()[0].partition("%")[0]).is_loopback
