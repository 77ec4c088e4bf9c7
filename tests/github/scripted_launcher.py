"""A launcher that shows what a test tells it to, and a ticket that was claimed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jobyard.domain.job import LogLine, Progress, Step
from jobyard.domain.lease import Lease
from jobyard.domain.runners.profile import RunnerProfile
from jobyard.github.launcher import Instance, LaunchRequest
from jobyard.ports.executor import ChildEnds
from jobyard.ports.store import Finding


class ScriptedLauncher:
    """`shown` is its view; `elsewhere` exists where no profile launches any more."""

    def __init__(self, name: str = "default") -> None:
        self.name = name
        self.shown: list[Instance] = []
        self.elsewhere: list[Instance] = []
        self.is_silent = False
        self.launched: list[LaunchRequest] = []
        self.removed: list[str] = []

    def instances(self) -> Sequence[Instance] | None:
        return None if self.is_silent else self.shown

    def namespace_of(self, profile: RunnerProfile) -> str:
        return profile.namespace or "runners"

    async def launch(self, request: LaunchRequest) -> Instance:
        self.launched.append(request)
        return Instance(name=request.name, uid="u", org_name=request.org_name, profile=request.profile.name)

    async def remove(self, instance: Instance, *, force: bool = False) -> None:
        self.removed.append(instance.name)

    async def annotate(self, instance: Instance, annotations: dict[str, str]) -> bool:
        return True

    async def get(self, name: str, namespace: str = "") -> Instance | None:
        found = (each for each in self.elsewhere if each.namespace == namespace)
        return next((each for each in (*self.shown, *found) if each.name == name), None)

    async def start(self, on_change: Callable[[Instance], None]) -> None: ...

    async def stop(self) -> None: ...

    async def sweep(self) -> int:
        return 0

    async def check(self, profiles: Sequence[RunnerProfile]) -> list[Finding]:
        return []


class Claim:
    """An attempt of the worker."""

    is_stopping = False
    ends_itself = False
    child_ends: ChildEnds | None = None
    raised: BaseException | None = None

    def __init__(self, lease: Lease) -> None:
        self.lease = lease

    async def report(
        self, *, progress: Progress | None = None, lines: tuple[LogLine, ...] = (), step: Step | None = None
    ) -> None: ...

    async def complete(self, result: bytes, transaction: object) -> None: ...
