"""Runner profiles: which jobs a kind of runner serves, and how it is launched."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec


class RunnerTimeouts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long a runner may stay in each state, in seconds, before it is removed."""

    minted: float = 60.0  # registered with GitHub, and not launched; or given a job, and not registered
    unschedulable: float = 300.0  # no node has room; cluster autoscalers need about a minute
    image_error: float = 120.0  # its image cannot be pulled; an invalid image name is final at once
    starting: float = 300.0  # launched, and its container does not run yet
    not_online: float = 120.0  # its container runs, and GitHub has not seen it online
    idle: float = 300.0  # online, and GitHub gives it no job
    busy: float = 432_000.0  # GitHub ends a job of a self-hosted runner after 5 days
    ended: float = 300.0  # its job has ended on GitHub, and the container still runs
    terminating: float = 120.0  # it was deleted and is still there; then it is removed by force
    warm: float = 21_600.0  # started without a job; then it is replaced


class RunnerProfile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    labels: tuple[str, ...]
    runner_group: str = "Default"
    cluster: str = "default"
    image: str = ""
    namespace: str | None = None  # None: the one of the cluster
    pod_template: dict[str, Any] = {}  # merged into the pod; lists of named items are merged by name
    max_running: int | None = None  # of this profile, in all organizations
    warm: int = 0  # runners that are started before there is a job for them
    work_folder: str = "_work"
    timeouts: RunnerTimeouts = RunnerTimeouts()

    @property
    def digest(self) -> str:
        """Equal for profiles whose instances are equal. Labels and the group belong to the registration."""
        parts = (self.cluster, self.namespace, self.image, self.pod_template)
        return hashlib.sha256(msgspec.json.encode(parts, order="deterministic")).hexdigest()[:16]

    def serves(self, labels: Iterable[str]) -> bool:
        """Whether all labels of a job are labels of the profile, in either case; a job without labels matches none.

        >>> profile = RunnerProfile(name="linux", labels=("self-hosted", "code-linux"))
        >>> profile.serves(["Code-Linux"]), profile.serves(["code-linux", "gpu"]), profile.serves([])
        (True, False, False)
        """
        wanted = {label.casefold() for label in labels}
        return bool(wanted) and wanted <= {label.casefold() for label in self.labels}


def profile_for(labels: Sequence[str], profiles: Iterable[RunnerProfile]) -> RunnerProfile | None:
    """The first profile that serves a job with these labels."""
    return next((profile for profile in profiles if profile.serves(labels)), None)


def runner_labels(profile: RunnerProfile, job_labels: Iterable[str] = ()) -> tuple[str, ...]:
    """The labels to register a runner with: GitHub adds none to a just-in-time runner.

    >>> runner_labels(RunnerProfile(name="linux", labels=("code-linux",)), ["Code-Linux", "code-linux"])
    ('code-linux',)
    """
    found: dict[str, str] = {}
    for label in (*profile.labels, *job_labels):
        found.setdefault(label.casefold(), label)
    return tuple(found.values())
