"""Near or far: whether a command works on the store itself or through a server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import click
from click.core import ParameterSource

from jobyard.config import Found
from jobyard.config.settings import API_URL, SERVER
from jobyard.domain.access import OWNER
from jobyard.errors import ConfigurationError
from jobyard.operations.audit import Audit
from jobyard.operations.tokens import TokenInfo, Tokens


class Far(NamedTuple):
    url: str
    origin: str  # the flag or the variable that said so
    is_alone: bool  # nothing names a store as well

    def refusal(self, command: str) -> ConfigurationError:
        return ConfigurationError(
            f"`{command}` needs the store itself and does not work through a server ({self.origin}). "
            "Run it where the store is, with --store and without --server."
        )


def chosen_server(context: click.Context, found: Found, environment: Mapping[str, str]) -> Far | None:
    """A flag wins over variables, and among flags nothing is guessed."""
    url = context.params.get("server") or ""
    by_flag = context.get_parameter_source("server") is ParameterSource.COMMANDLINE
    store_by_flag = context.get_parameter_source("store") is ParameterSource.COMMANDLINE
    if by_flag and store_by_flag:
        raise click.UsageError("Give --server or --store, not both.")
    is_alone = by_flag or not (found.says("store", "url") or found.configuration.worker.app is not None)
    if url and not store_by_flag:
        return Far(url, str(SERVER.flag) if by_flag else SERVER.variable, is_alone)
    # A common name, which may be meant for another program.
    url = environment.get(API_URL.variable, "")
    return Far(url, API_URL.variable, is_alone) if url and is_alone and not store_by_flag else None


class TokenDesk(Protocol):
    """What `jobyard tokens` needs; each change is written down by whoever makes it."""

    async def create(
        self, name: str, role: str, queues: tuple[str, ...], groups: tuple[str, ...], expire_seconds: float | None
    ) -> tuple[TokenInfo, str]: ...

    async def list(self) -> list[TokenInfo]: ...

    async def revoke(self, info: TokenInfo) -> bool: ...


class StoreTokens:
    """Tokens in the store itself, changed by its owner."""

    def __init__(self, tokens: Tokens, audit: Audit) -> None:
        self._tokens = tokens
        self._audit = audit

    async def create(
        self, name: str, role: str, queues: tuple[str, ...], groups: tuple[str, ...], expire_seconds: float | None
    ) -> tuple[TokenInfo, str]:
        info, text = await self._tokens.create(name, role, queues, groups, expire_seconds)
        told = {"name": name, "role": role, "queues": list(queues), "groups": list(groups)}
        await self._audit.record(OWNER, "token.create", info.id, told)
        return info, text

    async def list(self) -> list[TokenInfo]:
        return await self._tokens.list()

    async def revoke(self, info: TokenInfo) -> bool:
        revoked = await self._tokens.revoke(info.id)
        if revoked:
            await self._audit.record(OWNER, "token.revoke", info.id, {"name": info.name})
        return revoked
