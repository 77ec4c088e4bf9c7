"""The configuration as structs: one per section, with the defaults."""

from __future__ import annotations

from typing import Any

import msgspec

from jobyard.domain.lease import DEFAULT_LEASE_SECONDS
from jobyard.domain.platforms import Platform
from jobyard.domain.runners.cluster import Cluster, KubernetesCluster
from jobyard.domain.runners.profile import RunnerProfile
from jobyard.domain.runners.settings import ManagerSettings
from jobyard.executors.sandbox.bounds import Bounds
from jobyard.operations.alerts import AlertSettings
from jobyard.operations.schedules import SHORTEST_INTERVAL_SECONDS

MAX_CONCURRENCY = 10_000
MAX_TCP_SOCKETS = 128
EVERY_QUEUE = "*"  # settings for queues that have none of their own


class StoreSection(msgspec.Struct, frozen=True, kw_only=True):
    url: str = "sqlite:///jobs.db"
    queues: dict[str, str] = {}  # queues in other stores: name to URL


class WorkerSection(msgspec.Struct, frozen=True, kw_only=True):
    app: str | None = None
    concurrency: int = 2
    queues: tuple[str, ...] = ()  # empty: all
    platforms: tuple[str, ...] = ()  # the same, of names that are checked
    memory_limit: int | None = None  # bytes; None: by the class of its platforms, 0: no limit
    lease_seconds: float = DEFAULT_LEASE_SECONDS
    shutdown_timeout: float = 30.0
    processes: int = 1
    health_host: str = "127.0.0.1"
    health_port: int | None = None  # None: no health server


class ServerSection(msgspec.Struct, frozen=True, kw_only=True):
    host: str = "127.0.0.1"
    port: int = 8080
    root_path: str = ""  # the path prefix behind a proxy, such as /jobs
    environment: str = ""  # a badge of the dashboard, such as production
    public_origin: str | None = None  # the origin that browsers see, such as https://jobs.example.com
    tls_cert: str | None = None  # None: no TLS
    tls_key: str | None = None  # None: in the file of tls_cert
    max_body_bytes: int = 2 << 20
    requests_per_second: float = 500.0
    request_burst: int = 1000
    header_seconds: float = 10.0
    max_connections: int = 4000
    max_connections_per_address: int = 2000
    audit_keep: int = 100_000
    submitters_create_queues: bool = False
    lame_duck_seconds: float = 0.0
    shutdown_timeout: float = 10.0


class SchedulerSection(msgspec.Struct, frozen=True, kw_only=True):
    enabled: bool = True  # in `jobyard up`
    shortest_interval_seconds: float = SHORTEST_INTERVAL_SECONDS
    health_host: str = "127.0.0.1"
    health_port: int | None = None  # None: no health server


class SandboxSection(Bounds, frozen=True, kw_only=True):
    enabled: bool = False
    socket: str | None = None  # None: each worker starts its own daemon
    min_tier: str = "B"
    slots: int | None = None  # None: the concurrency of the worker
    languages: str | None = None  # None: the languages.yaml of the package
    pool: int | None = None  # None: as in languages.yaml
    unix_sockets: bool = False  # whether programs may create Unix stream sockets
    tcp_sockets: int = 0  # how many sockets a program may have when it connects over TCP; 0: it has no TCP
    allow_users: tuple[str, ...] = ()  # of `jobyard sandboxd`, besides root and its own user
    webhook_secret: str | None = None  # signs the webhooks of programs that bring no secret of their own
    webhooks_to_private: bool = False  # whether they may call addresses that are not public
    reject_when_unavailable: bool = False  # POST /execute while no worker has a sandbox; False: programs wait for one

    @property
    def bounds(self) -> Bounds:
        return Bounds(**{name: getattr(self, name) for name in Bounds.__struct_fields__})


class RunnersSection(msgspec.Struct, frozen=True, kw_only=True):
    """The GitHub runner manager; without profiles it serves no jobs."""

    enabled: bool = True  # the manager, in `jobyard up`
    max_total: int = 100
    max_per_org: int = 10
    org_limits: dict[str, int] = {}
    github_url: str = "https://github.com"
    github_api_url: str | None = None  # None: derived from github_url
    github_token: str | None = None  # a personal access token; or an App:
    github_app_id: int | str | None = None
    github_private_key: str | None = None
    github_ca_file: str | None = None
    webhook_secrets: tuple[str, ...] = ()
    org_hooks: dict[str, int] = {}
    instance: str = "jobyard"
    clusters: dict[str, Cluster] = {}  # empty: one named "default", of the manager's own pod or ~/.kube/config
    profiles: tuple[RunnerProfile, ...] = ()
    tick_seconds: float = ManagerSettings().tick_seconds
    full_seconds: float = ManagerSettings().full_seconds
    redelivery_seconds: float = ManagerSettings().redelivery_seconds
    launches: int = 20  # how many runners a manager launches at the same time
    warm_url: str = ""  # where warm runners reach the server

    @property
    def is_configured(self) -> bool:
        return bool(self.profiles)

    @property
    def all_clusters(self) -> dict[str, Cluster]:
        return self.clusters or {"default": KubernetesCluster()}

    def manager_settings(self) -> ManagerSettings:
        names = set(ManagerSettings.__struct_fields__) - {"organizations"}
        known = tuple(sorted({*self.org_limits, *self.org_hooks}))
        given = {name: getattr(self, name) for name in names}
        return ManagerSettings(organizations=known, **given)


class WorkflowsSection(msgspec.Struct, frozen=True, kw_only=True):
    folder: str | None = None  # None: workflows, if the current folder has it


class LogSection(msgspec.Struct, frozen=True, kw_only=True):
    level: str | None = None  # None: the default of the command
    format: str = "text"
    service_name: str | None = None


class AlertsSection(AlertSettings, frozen=True, kw_only=True):
    urls: tuple[str, ...] = ()  # services that receive alerts; empty: none are sent


class TracingSection(msgspec.Struct, frozen=True, kw_only=True):
    enabled: bool = False
    as_link: bool = False


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    store: StoreSection = StoreSection()
    queues: dict[str, dict[str, Any]] = {}  # by name: queue settings, and max_attempts
    schedules: dict[str, dict[str, Any]] = {}  # by name: fields of a schedule
    platforms: dict[str, Platform] = {}
    worker: WorkerSection = WorkerSection()
    server: ServerSection = ServerSection()
    scheduler: SchedulerSection = SchedulerSection()
    sandbox: SandboxSection = SandboxSection()
    runners: RunnersSection = RunnersSection()
    workflows: WorkflowsSection = WorkflowsSection()
    log: LogSection = LogSection()
    alerts: AlertsSection = AlertsSection()
    tracing: TracingSection = TracingSection()

    def all_queues(self) -> dict[str, dict[str, Any]]:
        """The queues with those of the platforms; a setting of the queue itself overrides the platform."""
        of_platforms = {name: {"max_running": each.max_running} for name, each in self.platforms.items()}
        return {name: of_platforms.get(name, {}) | self.queues.get(name, {}) for name in of_platforms | self.queues}
