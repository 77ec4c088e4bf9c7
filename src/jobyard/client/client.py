"""The client for asynchronous programs."""

from __future__ import annotations

from jobyard.client.access import AccessEndpoints
from jobyard.client.events import EventEndpoints
from jobyard.client.jobs import JobEndpoints
from jobyard.client.programs import ProgramEndpoints
from jobyard.client.queues import QueueEndpoints
from jobyard.client.runners import RunnerEndpoints
from jobyard.client.schedules import ScheduleEndpoints
from jobyard.client.transport import Transport
from jobyard.client.workflows import WorkflowEndpoints

TIMEOUT_SECONDS = 10.0
PATIENCE_SECONDS = 30.0


class Client(
    JobEndpoints,
    QueueEndpoints,
    ScheduleEndpoints,
    RunnerEndpoints,
    WorkflowEndpoints,
    AccessEndpoints,
    EventEndpoints,
    ProgramEndpoints,
):
    """`async with Client("https://jobs.example.org") as client: job = await client.enqueue("send_mail", {...})`.

    The token is `token`, or read from JOBYARD_TOKEN or JOBYARD_TOKEN_FILE. `timeout`: seconds for one request.
    `patience`: for how many seconds a request that is safe to retry is retried while the server is unavailable.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: float = TIMEOUT_SECONDS,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        self._transport = Transport(url, token, timeout, patience)

    @property
    def url(self) -> str:
        return self._transport.url

    async def close(self) -> None:
        await self._transport.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<Client {self.url}>"
