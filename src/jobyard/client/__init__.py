"""A yard on a server: the same verbs, over HTTP."""

from jobyard.client.blocking import BlockingClient, BlockingJob
from jobyard.client.client import Client
from jobyard.client.jobs import RemoteJob
from jobyard.client.requests import job_request
from jobyard.service.wire import JobFilter, JobRequest, JobSummary, JobView
from jobyard.service.wire_events import CloudEvent
from jobyard.service.wire_execute import ExecuteBatchRequest, ExecuteRequest, ExecutionView

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
