"""Verbs of the client for tokens, the audit log, the own principal, and health."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from msgspec import UNSET

from jobyard.api.schemas.access import (
    AuditPage,
    AuditView,
    PrincipalView,
    TokenCreated,
    TokenList,
    TokenRequest,
    TokenView,
)
from jobyard.api.schemas.events import HealthView
from jobyard.client.address import path
from jobyard.client.transport import Transport, as_query
from jobyard.domain.access import Role
from jobyard.operations.tokens import checked_role


class AccessVerbs:
    _transport: Transport

    async def me(self) -> PrincipalView:
        """The principal of the token, and its permissions."""
        return await self._transport.call("GET", "/v1/me", PrincipalView)

    async def tokens(self) -> tuple[TokenView, ...]:
        return (await self._transport.call("GET", "/v1/tokens", TokenList)).items

    async def create_token(
        self,
        name: str,
        role: Role | str,
        *,
        queues: Sequence[str] = (),
        groups: Sequence[str] = (),
        expire_seconds: float | None = None,
    ) -> TokenCreated:
        """Create a token; its text is only in this response. Without queues or groups, it has access to all of them."""
        body = TokenRequest(
            name=name,
            role=checked_role(role),
            queues=tuple(queues),
            groups=tuple(groups),
            expire_seconds=expire_seconds,
        )
        return await self._transport.call("POST", "/v1/tokens", TokenCreated, body=body)

    async def revoke_token(self, token_id: str) -> None:
        await self._transport.call("DELETE", path("v1", "tokens", token_id), type(None))

    async def audit(self, *, page_size: int = 200) -> AsyncIterator[AuditView]:
        """The audit log: who changed what, and when; oldest first."""
        token: str | None = None
        while True:
            query = as_query({"page_size": page_size, "page_token": token})
            page = await self._transport.call("GET", "/v1/audit", AuditPage, query=query)
            for entry in page.items:
                yield entry
            if page.next_page_token is UNSET:
                return
            token = str(page.next_page_token)

    async def health(self) -> HealthView:
        """The health of the server and its store; also returned, not raised, while unhealthy."""
        return await self._transport.call("GET", "/health", HealthView, also=(503,))
