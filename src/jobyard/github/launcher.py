"""The launcher port: where runners run. To add a launcher, implement `Launcher` and name it in `github.launchers`.

A launcher keeps a view of its instances by itself, and calls `on_change` whenever one changes. The manager decides what
to launch and to remove; a launcher never does either on its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from jobyard.domain.instant import Instant
from jobyard.domain.runners.profile import RunnerProfile
from jobyard.github.api import JitConfig
from jobyard.ports.store import Finding


class Phase(StrEnum):
    PENDING = "pending"  # not running yet
    RUNNING = "running"
    ENDED = "ended"  # the runner program has ended, whatever else is left of the instance


class PendingCause(StrEnum):
    """Why an instance is still PENDING."""

    UNSCHEDULABLE = "unschedulable"
    IMAGE_ERROR = "image_error"  # may pass: the registry may be away for a moment
    INVALID = "invalid"  # will not pass: an invalid image name, a missing secret


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """A runner as its launcher sees it. What it was launched with is kept with it, and survives an empty store."""

    name: str
    uid: str
    namespace: str = ""
    org_name: str = ""  # empty: a warm runner that has no job yet
    repository: str | None = None
    profile: str = ""
    ticket_id: str | None = None
    runner_id: int | None = None
    requested_job_id: int | None = None
    phase: Phase = Phase.PENDING
    is_terminating: bool = False
    trouble: PendingCause | None = None
    exit_code: int | None = None
    reason: str = ""  # in one line, for people
    created_at: Instant = 0
    started_at: Instant | None = None
    finished_at: Instant | None = None

    @property
    def holds_slot(self) -> bool:
        """Pending and running instances count towards the limits, also while they terminate; ended ones do not."""
        return self.phase is not Phase.ENDED


class LaunchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """`name` is unique per attempt, at most 63 characters, and a DNS label."""

    name: str
    profile: RunnerProfile
    org_name: str = ""
    repository: str | None = None
    ticket_id: str | None = None
    jit: JitConfig | None = None  # None: a warm runner, which gets its configuration later
    requested_job_id: int | None = None
    annotations: dict[str, str] = {}  # for people: repository, job name, URL, labels
    warm_url: str = ""  # where a warm runner asks for its configuration
    warm_token: str = ""  # how it identifies itself there


class Launcher(Protocol):
    name: str  # of the cluster in the configuration

    async def start(self, on_change: Callable[[Instance], None]) -> None:
        """Begin to observe instances. A cluster that is away must not raise: `instances` is None until it answers."""

    async def stop(self) -> None:
        """Stop observing. Instances are left as they are; safe twice."""

    def instances(self) -> Sequence[Instance] | None:
        """All instances of this manager where profiles launch, own launches included as soon as they were requested.

        None while they are not known completely: at the start, and while the cluster cannot be read. A removed
        instance is missing only once it is really gone.
        """

    def namespace_of(self, profile: RunnerProfile) -> str:
        """Where instances of the profile are launched; empty if clusters of this kind have no namespaces."""

    async def launch(self, request: LaunchRequest) -> Instance:
        """Create the instance; one of the same name is returned as it is. Raises LaunchError."""

    async def get(self, name: str, namespace: str = "") -> Instance | None:
        """Read one instance from its source, past the view. Raises LaunchUnavailable when that cannot be told.

        `namespace`: where it was launched, perhaps by an earlier configuration; empty: wherever profiles launch.
        """

    async def remove(self, instance: Instance, *, force: bool = False) -> None:
        """Delete the instance and everything that belongs to it; safe when it is gone. Raises LaunchUnavailable."""

    async def annotate(self, instance: Instance, annotations: dict[str, str]) -> bool:
        """Attach facts, such as the job that the runner has; whether that is certain to have worked.

        Those that identify a runner (org, registered-repository, ticket, job-id) change its Instance as well.
        """

    async def sweep(self) -> int:
        """Remove what instances left behind, such as secrets without a pod, and return how much it was."""

    async def check(self, profiles: Sequence[RunnerProfile]) -> list[Finding]:
        """Check access, permissions and the templates of these profiles without launching anything."""
