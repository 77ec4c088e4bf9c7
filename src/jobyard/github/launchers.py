"""Makes the launcher of a configured cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jobyard.domain.runners.cluster import Cluster, KubernetesCluster, ProcessCluster
from jobyard.domain.runners.profile import RunnerProfile
from jobyard.github.launcher import Launcher


def create_launchers(
    clusters: Mapping[str, Cluster], profiles: Sequence[RunnerProfile], instance: str
) -> dict[str, Launcher]:
    """One launcher for each cluster, by name. Raises ConfigurationError when a kubeconfig cannot be used."""
    return {name: create_launcher(name, cluster, profiles, instance) for name, cluster in clusters.items()}


def create_launcher(name: str, cluster: Cluster, profiles: Sequence[RunnerProfile], instance: str) -> Launcher:
    # Imported here, so that a manager of processes needs no HTTP client.
    match cluster:
        case KubernetesCluster():
            from jobyard.github.kubernetes.client import KubernetesClient  # noqa: PLC0415
            from jobyard.github.kubernetes.kubeconfig import find_access  # noqa: PLC0415
            from jobyard.github.kubernetes.launcher import KubernetesLauncher  # noqa: PLC0415

            access = find_access(cluster.kubeconfig, cluster.context)
            return KubernetesLauncher(
                name,
                KubernetesClient(access, cluster.request_timeout),
                instance=instance,
                namespace=cluster.namespace or access.namespace or "default",
                profiles=profiles,
                watch_seconds=cluster.watch_timeout,
            )
        case ProcessCluster():
            from jobyard.github.process.launcher import ProcessLauncher  # noqa: PLC0415

            return ProcessLauncher(name, cluster, instance=instance)
