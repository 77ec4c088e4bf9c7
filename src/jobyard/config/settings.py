"""All settings as data, from which flags, the docs table and the check of variables are made."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from jobyard.config.sections import Configuration
from jobyard.domain.job import QueueSettings

# An unknown variable with this prefix is probably a typing mistake.
PREFIX = "JOBYARD_"
# Separates the parts of a key, as in JOBYARD_WORKER__CONCURRENCY; `config.environment` reads and checks those.
SEPARATOR = "__"
# Set by the shell completion of click.
COMPLETION = "_COMPLETE"


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One environment variable, its key in jobyard.yaml, and the flag that overrides both."""

    variable: str
    key: str = ""
    flag: str | None = None
    default: str = ""
    secret: bool = False  # never shown; the variable with _FILE may name a file that holds it
    doc: str


SETTINGS: list[Setting] = []  # in the order of the table in the docs


def _variable(variable: str, doc: str, **more: Any) -> Setting:
    SETTINGS.append(Setting(variable=variable, doc=doc, **more))
    return SETTINGS[-1]


def _key(key: str, doc: str, variable: str = "", default: str | None = None, **more: Any) -> Setting:
    """A key of jobyard.yaml; its name gives the variable, and its section the default, where none is given."""
    variable = variable or PREFIX + key.upper().replace(".", SEPARATOR)
    default = _default(*key.split(".")) if default is None else default
    return _variable(variable, doc, key=key, default=default, **more)


def _default(section: str, word: str) -> str:
    match getattr(getattr(Configuration(), section), word):
        case bool() as value:
            return str(value).lower()
        case float() as value:
            return f"{value:g}"
        case None | () | {}:
            return ""
        case value:
            return str(value)


CONFIG = _variable(
    "JOBYARD_CONFIG",
    "The configuration file. Without it, jobyard.yaml in the current folder if there is one.",
    flag="--config",
)
STORE = _key(
    "store.url",
    "The store of the jobs: sqlite:///relative.db, sqlite:////absolute.db, redis://host:6379/0 or "
    "postgresql://user@host/database. Overrides the store of the app.",
    variable="JOBYARD_STORE",
    flag="--store",
    secret=True,
)
STORE_QUEUES = _key(
    "store.queues", 'Queues that are kept in other stores: {"mail": "redis://mail-redis:6379/0"}.', secret=True
)
REDIS_HOST = _variable(
    "REDIS_HOST",
    "With REDIS_PORT and REDIS_DB: the store is redis://REDIS_HOST:REDIS_PORT/REDIS_DB, if nothing else names one: "
    "a flag, JOBYARD_STORE, the file, or the app.",
)
REDIS_PORT = _variable("REDIS_PORT", "See REDIS_HOST.", default="6379")
REDIS_DB = _variable("REDIS_DB", "See REDIS_HOST.", default="0")
REDIS_PASSWORD = _variable(
    "REDIS_PASSWORD",
    "The password of a redis:// store whose URL has none; REDIS_PASSWORD_FILE names a file with it.",
    secret=True,
)
POSTGRES_PASSWORD = _variable(
    "PGPASSWORD",
    "The password of a postgresql:// store whose URL has none; PGPASSWORD_FILE names a file with it.",
    secret=True,
)
_key(
    "queues.*.max_attempts",
    "How many times a job is attempted in all, if neither its handler nor the caller sets it.",
    variable="QUEUE_MAX_ATTEMPTS",
    default="3",
)
_key(
    "queues.*.keep_completed",
    "How many completed jobs a queue keeps besides those of the last hour, if it has no setting of its own; "
    "true means none, false all.",
    variable="QUEUE_REMOVE_ON_COMPLETE",
    default=str(QueueSettings().keep_completed),
)
_key(
    "queues.*.keep_failed",
    "The same for failed jobs, besides those of the last seven days.",
    variable="QUEUE_REMOVE_ON_FAIL",
    default=str(QueueSettings().keep_failed),
)
APP = _key(
    "worker.app",
    "Your application as module:attribute, a Jobyard; imported from the current folder.",
    variable="JOBYARD_APP",
    flag="--app",
)
SERVER = _variable(
    "JOBYARD_SERVER",
    "Send commands to this server (http://host:8080) instead of the store; needs pip install 'jobyard[client]'.",
    flag="--server",
)
API_URL = _variable(
    "API_URL",
    "Like JOBYARD_SERVER. Used only if JOBYARD_SERVER, a store and an app are all not set. No token is sent there.",
)
_variable(
    "JOBYARD_TOKEN",
    "The API token for that server; `jobyard tokens create` makes one. JOBYARD_TOKEN_FILE names a file with it.",
    secret=True,
)
CONCURRENCY = _key(
    "worker.concurrency",
    "The number of jobs that one worker runs at a time.",
    variable="QUEUE_CONCURRENCY",
    flag="--concurrency",
)
_key("worker.queues", "The queues that a worker takes jobs from, separated by commas; empty: all.")
WORKER_PLATFORMS = _key(
    "worker.platforms",
    "The platforms that a worker serves, separated by commas; empty: all. See howto/platforms.md.",
    variable="WORKER_PLATFORMS",
)
_key(
    "platforms",
    "Queues that run one job at a time: names separated by commas, or a mapping of names to max_running and class "
    "(browser or api).",
    default="",
)
MEMORY_LIMIT = _key(
    "worker.memory_limit",
    "The memory of a worker with its child processes, such as 4G: at 90 % of it the worker takes no more jobs and "
    "replaces itself. 0: no limit. Not set: 4G if it serves a platform of class browser, 2G for class "
    "api, else no limit.",
    flag="--memory-limit",
)
LEASE_SECONDS = _key(
    "worker.lease_seconds",
    "After this many seconds without a renewal, the jobs of a worker are given to another.",
    variable="JOBYARD_LEASE_SECONDS",
    flag="--lease-seconds",
)
SHUTDOWN_TIMEOUT = _key(
    "worker.shutdown_timeout",
    "How many seconds a stopping worker waits for its jobs before it returns them to the queue.",
    variable="JOBYARD_SHUTDOWN_TIMEOUT",
    flag="--shutdown-timeout",
)
PROCESSES = _key("worker.processes", "The number of worker processes of `jobyard up`.", flag="--processes")
HEALTH_HOST = _key(
    "worker.health_host",
    "The address of --health-port. It needs no token, so keep it on a private network.",
    flag="--health-host",
)
HEALTH_PORT = _key(
    "worker.health_port",
    "A worker serves its /livez, /readyz, /health and /metrics on this port; the second worker of `jobyard up` "
    "uses the next port, and so on. Not set: no health server.",
    flag="--health-port",
)
ADMIN_TOKEN = _variable(
    "JOBYARD_ADMIN_TOKEN",
    "The text of an admin token that the server creates at its first start: jy_, 12 hexadecimal digits, _ and at least "
    "20 random characters. Only its hash is stored. JOBYARD_ADMIN_TOKEN_FILE names a file with it.",
    secret=True,
)
HOST = _key("server.host", "The address that the server listens on. Beyond loopback it needs a token.", flag="--host")
PORT = _key("server.port", "The port that the server listens on; 0 picks a free one.", variable="PORT", flag="--port")
ROOT_PATH = _key(
    "server.root_path",
    "The path prefix under which a proxy serves jobyard, such as /jobs; the proxy may remove it or not.",
    flag="--root-path",
)
_key(
    "server.environment",
    "A word that the dashboard shows beside its name, such as production or staging.",
)
PUBLIC_ORIGIN = _key(
    "server.public_origin",
    "The origin that browsers see behind a proxy, such as https://jobs.example.com; needed if the proxy changes the "
    "Host header.",
    flag="--public-origin",
)
TLS_CERT = _key(
    "server.tls_cert", "A PEM file with a certificate and its chain: the server then speaks HTTPS.", flag="--tls-cert"
)
TLS_KEY = _key("server.tls_key", "A PEM file with the private key. Not set: read from --tls-cert.", flag="--tls-key")
_key("server.max_body_bytes", "The largest request body; a larger one gets status 413.")
_key("server.requests_per_second", "The sustained request rate of one token; above it, requests get status 429.")
_key("server.request_burst", "The number of requests that one token may send in a burst.")
_key("server.header_seconds", "The timeout for the headers of a request.")
_key("server.max_connections", "The number of connections; 50 more answer only health probes.")
_key(
    "server.max_connections_per_address",
    "The number of connections of one client address. Behind a proxy, all clients share the address of the proxy.",
)
_key(
    "server.submitters_create_queues",
    "Whether a job of a submitter may name a queue that does not exist yet and is not one of the app or of the token.",
)
_key("server.audit_keep", "The number of entries to keep of each part of the audit log.")
_key(
    "server.lame_duck_seconds",
    "How long a stopping server accepts connections while /readyz fails, so that a load balancer notices.",
)
_key("server.shutdown_timeout", "How long a stopping server waits for requests in flight.")
SCHEDULER = _key(
    "scheduler.enabled",
    "Whether `jobyard up` runs a scheduler; if false, run `jobyard scheduler` elsewhere.",
    flag="--scheduler",
)
_key(
    "scheduler.shortest_interval_seconds",
    "The shortest interval between two ticks of a schedule; a schedule with a shorter one is rejected.",
)
SCHEDULER_HEALTH_HOST = _key("scheduler.health_host", "The address of its --health-port.", flag="--health-host")
SCHEDULER_HEALTH_PORT = _key(
    "scheduler.health_port",
    "`jobyard scheduler` serves its /livez, /readyz, /health and /metrics on this port. Not set: no health server.",
    flag="--health-port",
)
SANDBOX_ENABLED = _key(
    "sandbox.enabled",
    "Whether workers run the programs that are submitted to POST /execute; see howto/code-runner.md.",
    flag="--sandbox",
)
SANDBOX_SOCKET = _key(
    "sandbox.socket",
    "The socket of a sandbox daemon (`jobyard sandboxd`). Not set: each worker starts its own.",
    flag="--socket",
)
SANDBOX_MIN_TIER = _key(
    "sandbox.min_tier",
    "The weakest isolation tier to accept: A (namespaces made as root, control groups), B (namespaces of an "
    "ordinary user) or C (filter and Landlock, Python only). If the machine offers less, no program runs.",
    flag="--min-tier",
)
SANDBOX_SLOTS = _key(
    "sandbox.slots",
    "How many programs a daemon runs at a time. Not set: the concurrency of its worker.",
    flag="--slots",
)
SANDBOX_LANGUAGES = _key("sandbox.languages", "A languages.yaml that replaces the default one.", flag="--languages")
SANDBOX_POOL = _key(
    "sandbox.pool", "How many warm interpreters to keep per language. Not set: as in languages.yaml.", flag="--pool"
)
SANDBOX_UNIX_SOCKETS = _key(
    "sandbox.unix_sockets",
    "Whether programs may create Unix stream sockets, among their own processes: `multiprocessing.Manager` needs them. "
    "Only in tier A, and in tier B with a control group. See sandbox.md.",
    flag="--unix-sockets",
)
SANDBOX_TCP_SOCKETS = _key(
    "sandbox.tcp_sockets",
    "How many sockets a program may have when it connects over TCP, among its own processes: a connection takes two, "
    "and its listener one. 0: programs have no TCP. Only in tier A. Each connection can take 9 MB of memory that no "
    "limit counts. See sandbox.md.",
    flag="--tcp-sockets",
)
_key(
    "sandbox.allow_users",
    "The users that may connect to `jobyard sandboxd`, separated by commas, besides root and its own user.",
)
_key(
    "sandbox.reject_when_unavailable",
    "Whether POST /execute is answered with 503 while no live worker has a sandbox. Otherwise programs are stored and "
    "wait for one.",
)
_key(
    "sandbox.webhook_secret",
    "The secret (whsec_…) that signs the webhooks of programs that bring none of their own.",
    secret=True,
)
_key(
    "sandbox.webhooks_to_private",
    "Whether webhooks of programs may call addresses that are not public: loopback, private networks, link-local.",
)
_key("sandbox.max_time_seconds", "The longest time limit that a request may set.")
_key("sandbox.max_memory_mb", "The most memory that a request may set.")
_key("sandbox.max_processes", "The most processes and threads that a request may allow.")
_key("sandbox.max_files_open", "The most open files of a process.")
_key("sandbox.max_output_bytes", "The most output to keep, for each of stdout and stderr.")
_key("sandbox.max_disk_mb", "The most disk space for the working folder.")
_key("sandbox.max_disk_files", "The most files in the working folder.")
_key("sandbox.max_source_bytes", "The longest program.")
_key("sandbox.max_input_bytes", "The longest standard input.")
_key("sandbox.max_files", "The most files to send with a program, and to bring back.")
_key("sandbox.max_file_bytes", "The total size of the files to send, and of those to bring back.")
_key("sandbox.max_batch", "The most inputs of one batch.")
_variable("JOBYARD_SANDBOX_TESTING", "Set: a request may disable a layer of the sandbox, to test the others.")
_key(
    "runners.enabled",
    "Whether `jobyard up` runs the manager of GitHub runners when profiles are configured; if false, run "
    "`jobyard runners manager` elsewhere. See howto/github-runners.md.",
)
_key("runners.max_total", "The most runners at the same time, of all organizations.")
_key("runners.max_per_org", "The most runners of one organization, if it has no limit of its own.")
_key("runners.org_limits", 'Limits of single organizations: {"acme": 25}. Changed at run time by `jobyard limits set`.')
_key("runners.github_url", "The address of GitHub, or of a GitHub Enterprise Server.")
_key("runners.github_api_url", "The address of its REST API. Not set: derived from github_url.")
_key("runners.github_token", "A personal access token with the scope admin:org; a GitHub App is better.", secret=True)
_key("runners.github_app_id", "The id of a GitHub App, with github_private_key instead of a token.")
_key("runners.github_private_key", "The private key of the GitHub App, as PEM text.", secret=True)
_key("runners.github_ca_file", "A PEM file with the authority that signed the certificate of the Enterprise Server.")
_key(
    "runners.webhook_secrets",
    "The secret of the webhook, or several while it is rotated; in a variable or a file, one per line.",
    secret=True,
)
_key("runners.org_hooks", 'Ids of organization webhooks, to find lost deliveries with a token: {"acme": 12345}.')
_key("runners.instance", "A label of the pods; managers that share a namespace need different ones.")
_key(
    "runners.clusters",
    "Where runners run, by name: backend kubernetes (namespace, kubeconfig, context) or process (runner_folder, "
    "work_folder, user). Not set: the cluster of the manager's own pod, or ~/.kube/config.",
)
_key("runners.profiles", "Kinds of runners, each with a name and labels; a job goes to the first that has its labels.")
_key("runners.tick_seconds", "How often the manager compares everything that it knows, besides acting on events.")
_key("runners.full_seconds", "How often the manager compares everything with GitHub.")
_key("runners.redelivery_seconds", "How often the manager looks for webhook deliveries that failed.")
_key("runners.launches", "How many runners one manager launches at the same time.")
_key("runners.warm_url", "The address under which pods reach this server; needed if a profile has warm runners.")
WORKFLOWS = _key(
    "workflows.folder",
    "The folder of workflow files; see howto/workflow-files.md. Not set: workflows, if the current folder has it.",
)
LOG_LEVEL = _key(
    "log.level",
    "debug, info, warning or error; for one component: info,store=debug. The worker and the server start at info.",
    variable="LOG_LEVEL",
    flag="--log-level",
    default="warning",
)
LOG_FORMAT = _key(
    "log.format", "text, or json: one object per line, with the id of the job if there is one.", flag="--log-format"
)
_key(
    "log.service_name",
    "The name of this service: in every log line, and at the beginning of the names of its workers.",
    variable="SERVICE_NAME",
)
_key(
    "alerts.urls",
    "Services that receive alerts, such as the webhook of Slack or Discord; in a variable or a file, one per line. "
    "Needs pip install 'jobyard[alerts]'. See howto/monitoring.md.",
    secret=True,
)
_key("alerts.queue_length", "An alert is sent when more jobs than this wait in a queue. Empty in the file: none.")
_key("alerts.worker_lost", "Whether an alert is sent when a worker no longer reports without having stopped.")
_key("alerts.interval_seconds", "How often the server looks at queues and workers.")
_key("alerts.repeat_seconds", "After this long, an alert whose cause lasts is sent again.")
_key(
    "tracing.enabled",
    "OpenTelemetry spans from request and enqueue to handler; OTEL_TRACES_EXPORTER (otlp, console, none) and "
    "the other OTEL_ variables say where they are exported.",
)
_key(
    "tracing.as_link",
    "A handler's span starts a new trace with a link to the enqueue, instead of continuing its trace.",
)
_variable("NO_COLOR", "Set to any value: no colour, even on a terminal.")
DEMO_SECONDS = _variable("JOBYARD_DEMO_SECONDS", "The demo (`make demo`) stops after this many seconds.")
_variable("JOBYARD_SOAK", "Set to 1: the race and fault tests run with full counts (`make soak`).")
for _name, _title in (("REDIS", "Redis"), ("POSTGRES", "PostgreSQL"), ("PGBOUNCER", "PgBouncer")):
    _variable(f"JOBYARD_TEST_{_name}_URL", f"The tests use this {_title} instead of starting one.")


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
        ours = name.startswith(PREFIX) and SEPARATOR not in name
        if ours and name not in known and not name.endswith(COMPLETION):
            near = difflib.get_close_matches(name, known, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            warnings.append(f"{name} is not a setting and has no effect.{hint}")
    return warnings
