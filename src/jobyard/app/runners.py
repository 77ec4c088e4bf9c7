"""The runner manager of a process: built from the configuration, run beside a worker that claims its tickets."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from jobyard.app.jobyard import Jobyard
from jobyard.config.sections import RunnersSection
from jobyard.domain.lease import DEFAULT_LEASE_SECONDS
from jobyard.domain.runners.cluster import ProcessCluster
from jobyard.errors import ConfigurationError
from jobyard.github.api import GitHubApi
from jobyard.github.event_ingest import EventIngest
from jobyard.github.launcher import Launcher
from jobyard.github.manager import RunnerManager
from jobyard.github.queries import RunnerQueries
from jobyard.github.services import RunnerServices
from jobyard.github.tickets import QUEUE
from jobyard.live_events.publisher import LiveEventPublisher
from jobyard.observability.composite import CompositeObserver
from jobyard.ports.executor import Executor
from jobyard.ports.store import Store
from jobyard.worker.worker import Worker, worker_name

if TYPE_CHECKING:
    from jobyard.github.metrics import RunnerMetrics  # its package is an extra

log = logging.getLogger("jobyard.runners")

# How long launches that have begun may take to finish; after that their tickets go back to the queue.
SHUTDOWN_SECONDS = 20.0


def require_runners(section: RunnersSection) -> None:
    """Raise ConfigurationError for a section that cannot work."""
    clusters = section.all_clusters
    for profile in section.profiles:
        if profile.cluster not in clusters:
            raise ConfigurationError(
                f"runners.profiles: profile {profile.name} names the cluster {profile.cluster}, "
                f"and runners.clusters has {', '.join(clusters)}."
            )
        if profile.warm and not section.warm_url:
            raise ConfigurationError(
                f"runners.profiles: profile {profile.name} has warm runners, which fetch their configuration from "
                "this server. Set runners.warm_url to the address under which pods reach it."
            )
        if profile.warm and isinstance(clusters[profile.cluster], ProcessCluster):
            raise ConfigurationError(
                f"runners.profiles: profile {profile.name} has warm runners, which the backend process does not have. "
                "Set warm: 0 or use a Kubernetes cluster."
            )
    if section.is_configured and not section.webhook_secrets:
        raise ConfigurationError(
            "runners.webhook_secrets is not set, so no event of GitHub can be verified. Set the secret of the webhook."
        )


def build_ingest(section: RunnersSection, store: Store) -> EventIngest:
    return EventIngest(store, section.manager_settings())


def build_github(section: RunnersSection) -> GitHubApi:
    try:
        from jobyard.github.client import GitHubAccess, GitHubClient  # noqa: PLC0415  # its packages are an extra
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"Runners need the Python package {error.name}, which is not installed. "
            "Install it with: pip install 'jobyard[github]'"
        ) from error
    access = GitHubAccess(
        url=section.github_url,
        api_url=section.github_api_url,
        token=section.github_token,
        app_id=section.github_app_id,
        private_key=section.github_private_key,
        ca_file=section.github_ca_file,
        org_hooks=section.org_hooks,
    )
    access.validate()
    return GitHubClient(access)


def build_launchers(section: RunnersSection) -> dict[str, Launcher]:
    """The launchers of all clusters: runners may be left in one that no profile names any more."""
    from jobyard.github.launchers import create_launchers  # noqa: PLC0415  # its packages are an extra

    return create_launchers(section.all_clusters, section.profiles, section.instance)


def build_services(section: RunnersSection, store: Store) -> RunnerServices:
    """What the server needs: it stores events, answers queries, and checks requeued jobs with GitHub."""
    require_runners(section)
    settings = section.manager_settings()
    return RunnerServices(
        settings=settings,
        ingest=build_ingest(section, store),
        github=build_github(section),
        webhook_secrets=section.webhook_secrets,
        queries=RunnerQueries(store, settings),
    )


class RunnerManagerProcess:
    """A manager and its worker, as a part of a process that runs until it is stopped."""

    def __init__(
        self,
        yard: Jobyard,
        section: RunnersSection,
        services: RunnerServices,
        metrics: RunnerMetrics | None = None,
    ) -> None:
        name = worker_name()
        self.manager = RunnerManager(
            yard.store,
            section.manager_settings(),
            services.github,
            build_launchers(section),
            worker_id=name,
            ingest=services.ingest,
        )
        executor: Executor = self.manager.executor
        if metrics is not None:
            metrics.attach_manager(self.manager.reconciler, self.manager.recovery)
            executor = metrics.measured(executor)
        live_events = LiveEventPublisher(yard.store, name)
        self.worker = Worker(
            yard.store,
            executor,
            CompositeObserver(live_events, yard.observer),
            queues=[QUEUE],
            concurrency=section.launches,
            lease_seconds=DEFAULT_LEASE_SECONDS,
            shutdown_seconds=SHUTDOWN_SECONDS,
            name=name,
            services=[live_events, self.manager],
        )
        self._stops: set[asyncio.Task[None]] = set()
        self._is_stopping = False

    async def run(self) -> None:
        await self.worker.start()
        if self._is_stopping:  # a signal came meanwhile, when there was nothing to stop
            await self.worker.stop()
            return
        profiles = ", ".join(profile.name for profile in self.manager.settings.profiles)
        log.info("managing runners of the profiles %s", profiles)
        await self.worker.stopped()

    def stop(self, seconds: float | None = None) -> None:
        """Launch no more runners; those that are being launched are finished. Running ones are not touched."""
        self._is_stopping = True
        task = asyncio.get_running_loop().create_task(self.worker.stop(seconds))
        self._stops.add(task)
        task.add_done_callback(self._stops.discard)

    def force_stop(self) -> None:
        self.stop(0.0)
