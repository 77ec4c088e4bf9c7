"""A yard on a server, so that the command line has one set of verbs for near and far."""

from __future__ import annotations

from typing import Any

from jobyard.api.schemas.access import TokenView
from jobyard.app.jobyard import Jobyard
from jobyard.client import Client, RemoteJob
from jobyard.client.store import ServerStore
from jobyard.domain.explain import Explanation
from jobyard.domain.instant import instant
from jobyard.errors import BadOption, NotFound
from jobyard.operations.commands import Operate
from jobyard.operations.tokens import TokenInfo

# Somebody sits before it.
PATIENCE_SECONDS = 5.0


class ServerYard(Jobyard):
    """It knows no kinds: the server does."""

    def __init__(self, url: str) -> None:
        self.client = Client(url, patience=PATIENCE_SECONDS)
        self._far = ServerStore(self.client)
        super().__init__(store=self._far)
        self.operate = ServerOperate(self._far)

    async def __aenter__(self) -> ServerYard:
        await self.open()
        return self

    async def explain(self, job_id: str) -> Explanation:
        return await self._far.explain(job_id)

    async def hand_in(self, kind: str, payload: Any, **given: Any) -> RemoteJob:
        return await self.client.enqueue(kind, payload, **given)


class ServerOperate(Operate):
    def __init__(self, store: ServerStore) -> None:
        super().__init__(store)
        self._client = store.client

    async def control_worker(self, worker_id: str, what: str) -> None:
        verbs = {"quiet": self._client.quiet, "stop": self._client.stop}
        if what not in verbs:
            raise BadOption(f'A worker can be told to be "quiet" or to "stop", not "{what}".')
        await verbs[what](worker_id)


class ServerTokens:
    """Tokens from afar; the server writes its audit log itself."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def create(
        self, name: str, role: str, queues: tuple[str, ...], groups: tuple[str, ...], expire_seconds: float | None
    ) -> tuple[TokenInfo, str]:
        made = await self._client.create_token(name, role, queues=queues, groups=groups, expire_seconds=expire_seconds)
        return token_of(made), made.token

    async def list(self) -> list[TokenInfo]:
        return [token_of(view) for view in await self._client.tokens()]

    async def revoke(self, info: TokenInfo) -> bool:
        try:
            await self._client.revoke_token(info.id)
        except NotFound:
            return False
        return True


def token_of(view: TokenView) -> TokenInfo:
    facts = {name: getattr(view, name) for name in TokenInfo.__struct_fields__}
    facts["created_at"] = instant(view.created_at)
    facts["expires_at"] = None if view.expires_at is None else instant(view.expires_at)
    return TokenInfo(**facts)
