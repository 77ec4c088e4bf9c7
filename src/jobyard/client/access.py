"""Client methods for tokens, the audit log, the own principal, and health."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from jobyard.api.schemas import access as schemas
from jobyard.api.schemas.events import HealthView
from jobyard.client.address import path
from jobyard.client.transport import Transport
from jobyard.domain.access import Role
from jobyard.operations.tokens import checked_role


class AccessEndpoints:
    _transport: Transport

    async def me(self) -> schemas.PrincipalView:
        """The principal of the token, and its permissions."""
        return await self._transport.call("GET", "/v1/me", schemas.PrincipalView)

    async def tokens(self) -> tuple[schemas.TokenView, ...]:
        return (await self._transport.call("GET", "/v1/tokens", schemas.TokenList)).items

    async def create_token(
        self,
        name: str,
        role: Role | str,
        *,
        queues: Sequence[str] = (),
        groups: Sequence[str] = (),
        kinds: Sequence[str] = (),
        expire_seconds: float | None = None,
    ) -> schemas.TokenCreated:
        """Create a token; its text is only in this response. Without queues, groups or kinds, it has access to all."""
        body = schemas.TokenRequest(
            name=name,
            role=checked_role(role),
            queues=tuple(queues),
            groups=tuple(groups),
            kinds=tuple(kinds),
            expire_seconds=expire_seconds,
        )
        return await self._transport.call("POST", "/v1/tokens", schemas.TokenCreated, body=body)

    async def rotate_token(self, token_id: str, overlap_seconds: float = 0.0) -> schemas.TokenCreated:
        """Give a token a new secret; the old one is accepted for `overlap_seconds` more."""
        body = schemas.RotateRequest(overlap_seconds=overlap_seconds)
        return await self._transport.call(
            "POST", path("v1", "tokens", token_id, "rotate"), schemas.TokenCreated, body=body
        )

    async def revoke_token(self, token_id: str) -> None:
        await self._transport.call("DELETE", path("v1", "tokens", token_id), type(None))

    def audit(self, *, page_size: int = 200) -> AsyncIterator[schemas.AuditView]:
        """The audit log: who changed what, and when; oldest first."""
        return self._transport.walk("/v1/audit", schemas.AuditPage, {"page_size": page_size})

    async def health(self) -> HealthView:
        """The health of the server and its store; also returned, not raised, while unhealthy."""
        return await self._transport.call("GET", "/health", HealthView, also=(503,))
