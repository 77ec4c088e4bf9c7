"""Clusters: where runners run, as configured under `runners.clusters`."""

from __future__ import annotations

from typing import TypeAlias

import msgspec


class KubernetesCluster(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="backend", tag="kubernetes"
):
    """Each runner is a pod. Without a kubeconfig: the service account of the manager's own pod, else ~/.kube/config."""

    namespace: str | None = None  # None: the one of the service account or of the context, else "default"
    kubeconfig: str | None = None
    context: str | None = None  # None: the current context of the kubeconfig
    request_timeout: float = 15.0  # of one request, in seconds
    watch_timeout: float = 90.0  # a watch is renewed after that many seconds, so a dead connection is noticed


class ProcessCluster(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="backend", tag="process"
):
    """Each runner is a process on the manager's machine. Its jobs share the machine: use it for trusted code."""

    runner_folder: str  # an unpacked actions/runner release; it is copied for each runner
    work_folder: str  # one folder per runner is created in it
    user: str | None = None  # None: the user of the manager; another one requires that the manager is root
    stop_grace: float = 30.0  # seconds between SIGTERM and SIGKILL


Cluster: TypeAlias = KubernetesCluster | ProcessCluster
