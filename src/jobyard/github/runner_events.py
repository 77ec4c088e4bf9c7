"""What happens to runners, for the log and for metrics."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable

from jobyard.domain.runners.runner import Runner

log = logging.getLogger("jobyard.runners")

RunnerObserver = Callable[[str, Runner, str], None]  # what happened, to which runner, and why


class RunnerEvents:
    def __init__(self) -> None:
        self.observers: list[RunnerObserver] = []

    def tell(self, what: str, runner: Runner, why: str) -> None:
        log.info("runner %s of %s: %s%s", runner.name, runner.scope, what, f" ({why})" if why else "")
        for observer in self.observers:
            with contextlib.suppress(Exception):
                observer(what, runner, why)
