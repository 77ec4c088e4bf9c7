"""A handler with the options of its declaration, as other parts see it."""

from __future__ import annotations

from typing import Protocol

from jobyard.domain.job_options import CheckedOptions
from jobyard.executors.python.handlers import Handler


class DeclaredTask(Protocol):
    @property
    def handler(self) -> Handler: ...
    @property
    def defaults(self) -> CheckedOptions: ...
    @property
    def declares_max_attempts(self) -> bool: ...
