"""The HTTP client: `Client` for asynchronous programs, `BlockingClient` for synchronous ones."""

from jobyard.api.schemas.events import CloudEvent
from jobyard.api.schemas.execute import ExecuteBatchRequest, ExecuteRequest, ExecutionView
from jobyard.api.schemas.jobs import JobFilter, JobRequest, JobSummary, JobView
from jobyard.client.blocking import BlockingClient, BlockingJob
from jobyard.client.client import Client
from jobyard.client.jobs import RemoteJob
from jobyard.client.requests import job_request

__all__ = [
    "BlockingClient",
    "BlockingJob",
    "Client",
    "CloudEvent",
    "ExecuteBatchRequest",
    "ExecuteRequest",
    "ExecutionView",
    "JobFilter",
    "JobRequest",
    "JobSummary",
    "JobView",
    "RemoteJob",
    "job_request",
]
