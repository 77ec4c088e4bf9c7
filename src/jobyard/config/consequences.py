"""What happens if a setting has a valid value that is wrong for its purpose: a column of the configuration page."""

from __future__ import annotations

from collections.abc import Mapping

from jobyard.config.keys import Key, find
from jobyard.config.settings import Setting
from jobyard.errors import JobyardError

# By key, or by variable if the setting has no key.
CONSEQUENCES: Mapping[str, str] = {
    "JOBYARD_CONFIG": "A file that does not exist is an error.",
    "store.url": (
        "Another store: workers wait for jobs that never come. The start line of every process names its store."
    ),
    "store.queues": "Jobs of the queue that are in the old store stay there, unseen, until the old URL is back.",
    "REDIS_HOST": "As for JOBYARD_STORE.",
    "REDIS_PORT": "Not a number: the program does not start. Another port: as for JOBYARD_STORE.",
    "REDIS_DB": "As for REDIS_PORT.",
    "REDIS_PASSWORD": "The store rejects the connection, and the program says so.",
    "PGPASSWORD": "As for REDIS_PASSWORD.",
    "queues.*.max_attempts": (
        "Too low: a short outage of another service makes dead letters. Too high: a job that cannot succeed "
        "repeats its side effects."
    ),
    "queues.*.keep_completed": (
        "Too low: results and their logs are gone before they are read. Too high: the store grows."
    ),
    "queues.*.keep_failed": "Too low: dead letters, with their payloads, are gone before they are retried.",
    "worker.app": (
        "The module cannot be imported, or has no such attribute: the program does not start, and says which."
    ),
    "JOBYARD_SERVER": "No server there: commands fail after a few attempts.",
    "API_URL": "As for JOBYARD_SERVER.",
    "JOBYARD_TOKEN": "Commands get status 401 or 403.",
    "worker.concurrency": (
        "Too low: jobs wait while the machine is idle. Too high: handlers compete for memory and connections."
    ),
    "worker.queues": "A queue that no worker takes: its jobs wait, and `jobyard explain` says no_worker.",
    "worker.platforms": (
        "An unknown platform: the program does not start. One that no worker serves: as for worker.queues."
    ),
    "platforms": "A name that is not listed is not served one at a time.",
    "worker.memory_limit": (
        "Too low: the worker replaces itself again and again. Too high: the system kills it first, and its jobs "
        "run again."
    ),
    "worker.lease_seconds": (
        "Too low: a short stall of the machine or of the store makes jobs run twice. Too high: jobs of a dead "
        "worker wait that long."
    ),
    "worker.shutdown_timeout": (
        "Too low: jobs are handed back at every deployment. Longer than what systemd or Kubernetes allows: the "
        "worker is killed."
    ),
    "worker.processes": "Too many: memory, and connections to the store. Too few: one processor does all the work.",
    "worker.health_host": (
        "Not an address of this machine: the worker does not start. A public one: its metrics are public."
    ),
    "worker.health_port": "In use: the worker does not start.",
    "JOBYARD_ADMIN_TOKEN": "Another form: the server does not start. Known to others: they have full access.",
    "server.host": (
        "Not an address of this machine: the server does not start. A public one without TLS: tokens travel in "
        "clear text."
    ),
    "server.port": "In use: the server does not start, and says so.",
    "server.root_path": "Links and the login page lead nowhere.",
    "server.environment": "A person takes one environment for another.",
    "server.public_origin": "Changes from the pages in a browser get status 403.",
    "server.tls_cert": "Missing or not a certificate: the server does not start.",
    "server.tls_key": "Not the key of the certificate: the server does not start.",
    "server.max_body_bytes": "Too low: large payloads get status 413. Too high: one request takes that much memory.",
    "server.requests_per_second": "Too low: clients get status 429. Too high: one client can slow down all others.",
    "server.request_burst": "As for requests_per_second.",
    "server.header_seconds": "Too low: slow clients are cut off. Too high: idle connections take up places.",
    "server.max_connections": "Too low: clients are refused. Above the open files that the system allows: the same.",
    "server.max_connections_per_address": "Too low behind a proxy: all clients together are refused.",
    "server.submitters_create_queues": "true: a typing mistake of a submitter makes a queue that no worker takes.",
    "server.audit_keep": "Too low: old entries are gone when they are needed. Too high: the store grows.",
    "server.lame_duck_seconds": "Too low: a load balancer still sends requests to a server that is gone.",
    "server.shutdown_timeout": "Too low: requests are cut off. Longer than what the supervisor allows: the same.",
    "scheduler.enabled": "false without another scheduler: no schedule fires; `jobyard doctor` says so.",
    "scheduler.shortest_interval_seconds": (
        "Too low: a mistaken schedule fills the queue. Too high: valid ones are rejected."
    ),
    "scheduler.health_host": "As for worker.health_host.",
    "scheduler.health_port": "In use: the scheduler does not start.",
    "sandbox.enabled": "false everywhere: programs wait; `jobyard explain` says no_sandbox.",
    "sandbox.socket": "No daemon there: no program runs, and `jobyard sandbox status` says why.",
    "sandbox.min_tier": "Stronger than the machine offers: no program runs. Weaker than needed: less isolation.",
    "sandbox.slots": "Too high: programs slow each other down, and reach their time limits.",
    "sandbox.languages": "Missing or invalid: the daemon does not start, and names the line.",
    "sandbox.pool": "Too high: memory. 0: each program waits for its interpreter.",
    "sandbox.unix_sockets": (
        "true without need: more of the kernel within reach of programs. true in another tier: no effect, and "
        "`jobyard sandbox status` says why."
    ),
    "sandbox.tcp_sockets": (
        "Too high: this times 9 MB times slots may exceed the memory of the machine. Too low: a program that connects "
        'gets "No buffer space available". Set in another tier: no effect, and `jobyard sandbox status` says why.'
    ),
    "sandbox.allow_users": "The user of the workers is missing: they cannot connect, and no program runs.",
    "sandbox.reject_when_unavailable": "true: submitters need to repeat their requests. false: programs wait.",
    "sandbox.max_time_seconds": "Too high: a few endless programs take up all slots for that long.",
    "sandbox.max_memory_mb": "Too high: slots times this may exceed the memory of the machine.",
    "JOBYARD_SANDBOX_TESTING": "Set in production: a request can switch off a layer of the isolation.",
    "runners.enabled": "false without another manager: GitHub jobs wait for a runner.",
    "runners.max_total": "Too high: pods that the cluster cannot place. 0: no runner starts.",
    "runners.max_per_org": (
        "Too high: one organization takes all runners. 0: only organizations with a limit of their own."
    ),
    "runners.org_limits": "A misspelt name has no effect; `jobyard runners orgs` shows what applies.",
    "runners.github_url": "`jobyard runners check` says what it cannot reach.",
    "runners.github_api_url": "As for github_url.",
    "runners.github_token": (
        "GitHub answers 401 or 403: launches fail and are repeated; `jobyard runners check` says so."
    ),
    "runners.github_app_id": "As for github_token.",
    "runners.github_private_key": "As for github_token.",
    "runners.github_ca_file": "GitHub's certificate is not trusted: nothing is launched.",
    "runners.webhook_secrets": (
        "Webhooks get status 401, and nothing is stored; lost jobs are found by the periodic check."
    ),
    "runners.org_hooks": "Failed deliveries of the organization are not found again.",
    "runners.instance": "The same for two managers of one namespace: each removes pods of the other.",
    "runners.clusters": "`jobyard runners check` says which one does not respond; its profiles launch nothing.",
    "runners.profiles": "Labels that no profile serves: such jobs are acknowledged and ignored.",
    "runners.tick_seconds": "Too low: load on cluster and store. Too high: a missed event is noticed late.",
    "runners.full_seconds": "Too low: it uses up the rate limit of GitHub. Too high: cancelled jobs are noticed late.",
    "runners.redelivery_seconds": "As for full_seconds.",
    "runners.launches": (
        "Too high: it reaches secondary rate limits of GitHub. Too low: runners start one after another."
    ),
    "runners.warm_url": "Not reachable from the pods: warm runners get no configuration and are replaced.",
    "workflows.folder": "Not there: the program does not start. An invalid file: it is not loaded; the log names it.",
    "log.level": "debug: very many lines. error: failed attempts that run again are not logged.",
    "log.format": "text where a collector expects JSON: lines without fields.",
    "log.service_name": "The same for two services: their lines cannot be told apart.",
    "alerts.urls": "A form that is not known: the server does not start. A service that fails: logged, sent again.",
    "alerts.queue_length": "Too low: alerts for every burst. Too high: a queue that grows is noticed late.",
    "alerts.worker_lost": "false: a worker that is killed is seen only in metrics and logs.",
    "alerts.interval_seconds": "Too low: load on the store. Too high: alerts are late.",
    "alerts.repeat_seconds": "Too low: many messages. Too high: a lasting problem is forgotten.",
    "tracing.enabled": "true without the packages: the program does not start.",
    "tracing.as_link": "true: a trace ends at the enqueue, with a link.",
    "NO_COLOR": "Output has no colour.",
    "JOBYARD_DEMO_SECONDS": "The demo ends early.",
    "JOBYARD_SOAK": "The tests take hours.",
    "JOBYARD_TEST_REDIS_URL": "Its keys under the prefix of the run are removed.",
    "JOBYARD_TEST_POSTGRES_URL": "Its schemas of the run are dropped.",
    "JOBYARD_TEST_PGBOUNCER_URL": "Tests that need it fail.",
}


def valid_values(setting: Setting) -> str:
    """What the check of the key says to a value that it does not accept; empty if it accepts all text.

    >>> from jobyard.config.settings import PORT
    >>> valid_values(PORT)
    'must be a whole number from 0 to 65535'
    """
    key = find(tuple(setting.key.split("."))) if setting.key else None
    if not isinstance(key, Key):
        return ""
    try:
        key.check(setting.key, key.from_text("?"))
    except JobyardError as error:
        return (
            str(error).removeprefix(f"{setting.key} ").removesuffix(".").replace(", not '?'", "").replace(", not ?", "")
        )
    return ""


def if_wrong(setting: Setting) -> str:
    """What a value that is refused must be, and what one does that is accepted and wrong."""
    valid, wrong = valid_values(setting), CONSEQUENCES.get(setting.key or setting.variable, "")
    refused = f"{valid[0].upper()}{valid[1:]}; else the program does not start." if valid else ""
    return " ".join(filter(None, (refused, wrong)))
