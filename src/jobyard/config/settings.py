"""All settings as data, from which flags, the docs table and the check of variables are made."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from jobyard.config.sandbox_settings import SANDBOX
from jobyard.config.setting import Setting
from jobyard.domain.job import QueueSettings
from jobyard.domain.lease import DEFAULT_LEASE_SECONDS
from jobyard.operations.schedules import SHORTEST_INTERVAL_SECONDS

CONFIG = Setting(
    variable="JOBYARD_CONFIG",
    flag="--config",
    doc="The configuration file. Without it, jobyard.yaml in the current folder if there is one.",
)
STORE = Setting(
    variable="JOBYARD_STORE",
    key="store.url",
    flag="--store",
    default="sqlite:///jobs.db",
    secret=True,
    doc="The store of the jobs: sqlite:///relative.db, sqlite:////absolute.db, redis://host:6379/0 or "
    "postgresql://user@host/database. Overrides the store of the app.",
)
STORE_QUEUES = Setting(
    variable="JOBYARD_STORE__QUEUES",
    key="store.queues",
    secret=True,
    doc='Queues that are kept in other stores: {"mail": "redis://mail-redis:6379/0"}.',
)
APP = Setting(
    variable="JOBYARD_APP",
    key="worker.app",
    flag="--app",
    doc="Your application as module:attribute, a Jobyard; imported from the current folder.",
)
SERVER = Setting(
    variable="JOBYARD_SERVER",
    flag="--server",
    doc="Send commands to this server (http://host:8080) instead of the store; needs pip install 'jobyard[client]'.",
)
API_URL = Setting(
    variable="API_URL", doc="The same as JOBYARD_SERVER, if that is not set and neither a store nor an app is."
)
TOKEN = Setting(
    variable="JOBYARD_TOKEN",
    secret=True,
    doc="The API token for that server; `jobyard tokens create` makes one. JOBYARD_TOKEN_FILE names a file with it.",
)
LOG_LEVEL = Setting(
    variable="LOG_LEVEL",
    key="log.level",
    flag="--log-level",
    default="warning",
    doc="debug, info, warning or error; for one component: info,store=debug. The worker and the server start at info.",
)
LOG_FORMAT = Setting(
    variable="JOBYARD_LOG__FORMAT",
    key="log.format",
    flag="--log-format",
    default="text",
    doc="text, or json: one object per line, with the id of the job if there is one.",
)
CONCURRENCY = Setting(
    variable="QUEUE_CONCURRENCY",
    key="worker.concurrency",
    flag="--concurrency",
    default="2",
    doc="The number of jobs that one worker runs at a time.",
)
WORKER_QUEUES = Setting(
    variable="JOBYARD_WORKER__QUEUES",
    key="worker.queues",
    doc="The queues that a worker takes jobs from, separated by commas; empty: all.",
)
LEASE_SECONDS = Setting(
    variable="JOBYARD_LEASE_SECONDS",
    key="worker.lease_seconds",
    flag="--lease-seconds",
    default=f"{DEFAULT_LEASE_SECONDS:g}",
    doc="After this many seconds without a renewal, the jobs of a worker are given to another.",
)
SHUTDOWN_TIMEOUT = Setting(
    variable="JOBYARD_SHUTDOWN_TIMEOUT",
    key="worker.shutdown_timeout",
    flag="--shutdown-timeout",
    default="30",
    doc="How many seconds a stopping worker waits for its jobs before it returns them to the queue.",
)
PROCESSES = Setting(
    variable="JOBYARD_WORKER__PROCESSES",
    key="worker.processes",
    flag="--processes",
    default="1",
    doc="The number of worker processes of `jobyard up`.",
)
HEALTH_HOST = Setting(
    variable="JOBYARD_WORKER__HEALTH_HOST",
    key="worker.health_host",
    flag="--health-host",
    default="127.0.0.1",
    doc="The address of --health-port. It needs no token, so keep it on a private network.",
)
HEALTH_PORT = Setting(
    variable="JOBYARD_WORKER__HEALTH_PORT",
    key="worker.health_port",
    flag="--health-port",
    doc="A worker serves its /livez, /readyz, /health and /metrics on this port; the second worker of "
    "`jobyard up` uses the next port, and so on. Not set: no health server.",
)
HOST = Setting(
    variable="JOBYARD_SERVER__HOST",
    key="server.host",
    flag="--host",
    default="127.0.0.1",
    doc="The address that the server listens on. Beyond loopback it needs a token.",
)
PORT = Setting(
    variable="PORT",
    key="server.port",
    flag="--port",
    default="8080",
    doc="The port that the server listens on; 0 picks a free one.",
)
MAX_BODY_BYTES = Setting(
    variable="JOBYARD_SERVER__MAX_BODY_BYTES",
    key="server.max_body_bytes",
    default="2097152",
    doc="The largest request body; a larger one gets status 413.",
)
REQUESTS_PER_SECOND = Setting(
    variable="JOBYARD_SERVER__REQUESTS_PER_SECOND",
    key="server.requests_per_second",
    default="500",
    doc="The sustained request rate of one token; above it, requests get status 429.",
)
REQUEST_BURST = Setting(
    variable="JOBYARD_SERVER__REQUEST_BURST",
    key="server.request_burst",
    default="1000",
    doc="The number of requests that one token may send in a burst.",
)
HEADER_SECONDS = Setting(
    variable="JOBYARD_SERVER__HEADER_SECONDS",
    key="server.header_seconds",
    default="10",
    doc="The timeout for the headers of a request.",
)
AUDIT_KEEP = Setting(
    variable="JOBYARD_SERVER__AUDIT_KEEP",
    key="server.audit_keep",
    default="100000",
    doc="The number of entries of the audit log to keep.",
)
LAME_DUCK = Setting(
    variable="JOBYARD_SERVER__LAME_DUCK_SECONDS",
    key="server.lame_duck_seconds",
    default="0",
    doc="How long a stopping server accepts connections while /readyz fails, so that a load balancer notices.",
)
SERVER_SHUTDOWN = Setting(
    variable="JOBYARD_SERVER__SHUTDOWN_TIMEOUT",
    key="server.shutdown_timeout",
    default="10",
    doc="How long a stopping server waits for requests in flight.",
)
SCHEDULER = Setting(
    variable="JOBYARD_SCHEDULER__ENABLED",
    key="scheduler.enabled",
    flag="--scheduler",
    default="true",
    doc="Whether `jobyard up` runs a scheduler; if false, run `jobyard scheduler` elsewhere.",
)
SHORTEST_INTERVAL = Setting(
    variable="JOBYARD_SCHEDULER__SHORTEST_INTERVAL_SECONDS",
    key="scheduler.shortest_interval_seconds",
    default=f"{SHORTEST_INTERVAL_SECONDS:g}",
    doc="The shortest interval between two ticks of a schedule; a schedule with a shorter one is rejected.",
)
SCHEDULER_HEALTH_HOST = Setting(
    variable="JOBYARD_SCHEDULER__HEALTH_HOST",
    key="scheduler.health_host",
    flag="--health-host",
    default="127.0.0.1",
    doc="The address of the scheduler's --health-port.",
)
SCHEDULER_HEALTH_PORT = Setting(
    variable="JOBYARD_SCHEDULER__HEALTH_PORT",
    key="scheduler.health_port",
    flag="--health-port",
    doc="`jobyard scheduler` serves its /livez, /readyz, /health and /metrics on this port. Not set: no health server.",
)
TRACING = Setting(
    variable="JOBYARD_TRACING__ENABLED",
    key="tracing.enabled",
    default="false",
    doc="OpenTelemetry spans from request and enqueue to handler; OTEL_TRACES_EXPORTER (otlp, console, none) and "
    "the other OTEL_ variables say where they are exported.",
)
TRACING_AS_LINK = Setting(
    variable="JOBYARD_TRACING__AS_LINK",
    key="tracing.as_link",
    default="false",
    doc="A handler's span starts a new trace with a link to the enqueue, instead of continuing its trace.",
)
MAX_ATTEMPTS = Setting(
    variable="QUEUE_MAX_ATTEMPTS",
    key="queues.*.max_attempts",
    default="3",
    doc="How many times a job is attempted in all, if neither its handler nor the caller sets it.",
)
REMOVE_ON_COMPLETE = Setting(
    variable="QUEUE_REMOVE_ON_COMPLETE",
    key="queues.*.keep_completed",
    default=f"{QueueSettings().keep_completed}",
    doc="How many completed jobs a queue keeps, if it has no setting of its own; true keeps none, false all.",
)
REMOVE_ON_FAIL = Setting(
    variable="QUEUE_REMOVE_ON_FAIL",
    key="queues.*.keep_failed",
    default=f"{QueueSettings().keep_failed}",
    doc="The same for failed jobs.",
)
REDIS_HOST = Setting(
    variable="REDIS_HOST",
    doc="With REDIS_PORT and REDIS_DB: the store is redis://REDIS_HOST:REDIS_PORT/REDIS_DB, overriding the file; "
    "JOBYARD_STORE or a flag overrides it.",
)
REDIS_PORT = Setting(variable="REDIS_PORT", default="6379", doc="See REDIS_HOST.")
REDIS_DB = Setting(variable="REDIS_DB", default="0", doc="See REDIS_HOST.")
REDIS_PASSWORD = Setting(
    variable="REDIS_PASSWORD",
    secret=True,
    doc="The password of a redis:// store whose URL has none; REDIS_PASSWORD_FILE names a file with it.",
)
POSTGRES_PASSWORD = Setting(
    variable="PGPASSWORD",
    secret=True,
    doc="The password of a postgresql:// store whose URL has none; PGPASSWORD_FILE names a file with it.",
)
NO_COLOR = Setting(variable="NO_COLOR", doc="Set to any value: no colour, even on a terminal.")
DEMO_SECONDS = Setting(variable="JOBYARD_DEMO_SECONDS", doc="The demo (`make demo`) stops after this many seconds.")
SOAK = Setting(variable="JOBYARD_SOAK", doc="Set to 1: the race and fault tests run with full counts (`make soak`).")
TEST_SERVERS = tuple(
    Setting(variable=f"JOBYARD_TEST_{name}_URL", doc=f"The tests use this {title} instead of starting one.")
    for name, title in (("REDIS", "Redis"), ("POSTGRES", "PostgreSQL"), ("PGBOUNCER", "PgBouncer"))
)

SETTINGS = (
    CONFIG,
    STORE,
    STORE_QUEUES,
    REDIS_HOST,
    REDIS_PORT,
    REDIS_DB,
    REDIS_PASSWORD,
    POSTGRES_PASSWORD,
    MAX_ATTEMPTS,
    REMOVE_ON_COMPLETE,
    REMOVE_ON_FAIL,
    APP,
    SERVER,
    API_URL,
    TOKEN,
    CONCURRENCY,
    WORKER_QUEUES,
    LEASE_SECONDS,
    SHUTDOWN_TIMEOUT,
    PROCESSES,
    HEALTH_HOST,
    HEALTH_PORT,
    HOST,
    PORT,
    MAX_BODY_BYTES,
    REQUESTS_PER_SECOND,
    REQUEST_BURST,
    HEADER_SECONDS,
    AUDIT_KEEP,
    LAME_DUCK,
    SERVER_SHUTDOWN,
    SCHEDULER,
    SHORTEST_INTERVAL,
    SCHEDULER_HEALTH_HOST,
    SCHEDULER_HEALTH_PORT,
    *SANDBOX,
    LOG_LEVEL,
    LOG_FORMAT,
    TRACING,
    TRACING_AS_LINK,
    NO_COLOR,
    DEMO_SECONDS,
    SOAK,
    *TEST_SERVERS,
)

# An unknown variable with this prefix is probably a typing mistake.
OURS = "JOBYARD_"
# Separates the parts of a key, as in JOBYARD_WORKER__CONCURRENCY; `config.environment` reads and checks those.
BETWEEN = "__"
# Set by the shell completion of click.
COMPLETION = "_COMPLETE"


def unknown_variables(environment: Mapping[str, str], settings: Iterable[Setting] = SETTINGS) -> list[str]:
    """A warning for each variable that looks like a setting but is not one.

    >>> unknown_variables({"JOBYARD_STOER": "x", "HOME": "/root", "JOBYARD_APP": "a:b"})
    ['JOBYARD_STOER is not a setting and has no effect. Did you mean JOBYARD_STORE?']
    """
    settings = list(settings)
    known = [setting.variable for setting in settings]
    known += [f"{setting.variable}_FILE" for setting in settings if setting.secret]
    warnings = []
    for name in sorted(environment):
        ours = name.startswith(OURS) and BETWEEN not in name
        if ours and name not in known and not name.endswith(COMPLETION):
            near = difflib.get_close_matches(name, known, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            warnings.append(f"{name} is not a setting and has no effect.{hint}")
    return warnings
