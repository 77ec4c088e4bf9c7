"""Which factory makes the jobs of a process: the app's own, or one that accepts any kind."""

from __future__ import annotations

from jobyard.app.declarations import declarations_of
from jobyard.app.jobyard import Jobyard
from jobyard.operations.job_factory import JobFactory


def job_factory(yard: Jobyard, *, has_app: bool) -> JobFactory:
    return declarations_of(yard).job_factory if has_app else JobFactory(yard.max_payload_bytes)
