"""The configuration as structs: one per section, with the defaults."""

from __future__ import annotations

from typing import Any

import msgspec

from jobyard.domain.lease import DEFAULT_LEASE_SECONDS
from jobyard.executors.sandbox.bounds import Bounds
from jobyard.operations.schedules import SHORTEST_INTERVAL_SECONDS

MAX_CONCURRENCY = 10_000
EVERY_QUEUE = "*"  # settings for queues that have none of their own


class StoreSection(msgspec.Struct, frozen=True, kw_only=True):
    url: str = "sqlite:///jobs.db"
    queues: dict[str, str] = {}  # queues in other stores: name to URL


class WorkerSection(msgspec.Struct, frozen=True, kw_only=True):
    app: str | None = None
    concurrency: int = 2
    queues: tuple[str, ...] = ()  # empty: all
    lease_seconds: float = DEFAULT_LEASE_SECONDS
    shutdown_timeout: float = 30.0
    processes: int = 1
    health_host: str = "127.0.0.1"
    health_port: int | None = None  # None: no health server


class ServerSection(msgspec.Struct, frozen=True, kw_only=True):
    host: str = "127.0.0.1"
    port: int = 8080
    root_path: str = ""  # the path prefix behind a proxy, such as /jobs
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
    allow_users: tuple[str, ...] = ()  # of `jobyard sandboxd`, besides root and its own user
    reject_when_unavailable: bool = False  # POST /execute while no worker has a sandbox; False: programs wait for one

    @property
    def bounds(self) -> Bounds:
        return Bounds(**{name: getattr(self, name) for name in Bounds.__struct_fields__})


class LogSection(msgspec.Struct, frozen=True, kw_only=True):
    level: str | None = None  # None: the default of the command
    format: str = "text"


class TracingSection(msgspec.Struct, frozen=True, kw_only=True):
    enabled: bool = False
    as_link: bool = False


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    store: StoreSection = StoreSection()
    queues: dict[str, dict[str, Any]] = {}  # by name: queue settings, and max_attempts
    schedules: dict[str, dict[str, Any]] = {}  # by name: fields of a schedule
    worker: WorkerSection = WorkerSection()
    server: ServerSection = ServerSection()
    scheduler: SchedulerSection = SchedulerSection()
    sandbox: SandboxSection = SandboxSection()
    log: LogSection = LogSection()
    tracing: TracingSection = TracingSection()
