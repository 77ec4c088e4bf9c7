"""The client of GitHub's REST API: github.com and GitHub Enterprise Server, with a token or as a GitHub App."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobyard.github.client.access import GitHubAccess
from jobyard.github.client.checks import CheckEndpoints
from jobyard.github.client.connection import Connection
from jobyard.github.client.deliveries import DeliveryEndpoints
from jobyard.github.client.http import DEADLINE_SECONDS, Http
from jobyard.github.client.jobs import GitHubJobEndpoints
from jobyard.github.client.runners import GitHubRunnerEndpoints

if TYPE_CHECKING:
    import httpx2

    from jobyard.github.api import GitHubApi

__all__ = ["GitHubAccess", "GitHubClient"]


class GitHubClient(GitHubRunnerEndpoints, GitHubJobEndpoints, DeliveryEndpoints, CheckEndpoints):
    """Implements GitHubApi. `timeout`: seconds for one request; `transport` and `http`: for tests."""

    def __init__(
        self,
        access: GitHubAccess,
        *,
        timeout: float = DEADLINE_SECONDS,
        transport: httpx2.AsyncBaseTransport | None = None,
        http: Http | None = None,
    ) -> None:
        self._connection = Connection(access, http or Http(access, timeout, transport))

    def __repr__(self) -> str:
        return f"<GitHubClient {self._connection.http.base_url}>"

    async def start(self) -> None:
        self._connection.http.open()

    async def stop(self) -> None:
        await self._connection.http.close()


if TYPE_CHECKING:

    def _implements(client: GitHubClient) -> GitHubApi:
        return client
