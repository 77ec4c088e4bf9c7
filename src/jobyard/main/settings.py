"""Every setting of the program in one place, as data: the flags, the docs table and the check are made of it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

import msgspec

from jobyard.domain.lease import DEFAULT_LEASE_SECONDS


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One environment variable, the flag that overrides it (if any), its default and what it does."""

    variable: str
    flag: str | None = None
    default: str = ""
    doc: str


STORE = Setting(
    variable="JOBYARD_STORE",
    flag="--store",
    default="sqlite:///jobs.db",
    doc="Where the jobs live: sqlite:///relative.db, sqlite:////absolute.db, redis://host:6379/0 or "
    "postgresql://user@host/database. Wins over the app's own store.",
)
APP = Setting(
    variable="JOBYARD_APP",
    flag="--app",
    doc="Your application as module:attribute, naming a Jobyard; looked for from the current folder.",
)
LOG_LEVEL = Setting(
    variable="LOG_LEVEL",
    flag="--log-level",
    default="warning",
    doc="debug, info, warning or error; for one component: info,store=debug. The worker starts at info.",
)
CONCURRENCY = Setting(
    variable="QUEUE_CONCURRENCY",
    flag="--concurrency",
    default="2",
    doc="How many jobs one worker runs at a time.",
)
LEASE_SECONDS = Setting(
    variable="JOBYARD_LEASE_SECONDS",
    flag="--lease-seconds",
    default=f"{DEFAULT_LEASE_SECONDS:g}",
    doc="After how many seconds without a sign of life a worker's jobs run elsewhere.",
)
SHUTDOWN_TIMEOUT = Setting(
    variable="JOBYARD_SHUTDOWN_TIMEOUT",
    flag="--shutdown-timeout",
    default="30",
    doc="How many seconds a stopping worker lets its jobs finish before it hands them back.",
)
REDIS_PASSWORD = Setting(
    variable="REDIS_PASSWORD",
    doc="For a redis:// store whose URL has no password; REDIS_PASSWORD_FILE names a file that holds it.",
)
POSTGRES_PASSWORD = Setting(
    variable="PGPASSWORD",
    doc="For a postgresql:// store whose URL has no password; PGPASSWORD_FILE names a file that holds it.",
)
NO_COLOR = Setting(variable="NO_COLOR", doc="Set to anything: no colour, also on a terminal.")
DEMO_SECONDS = Setting(
    variable="JOBYARD_DEMO_SECONDS", doc="The demo (`make run`) stops by itself after so many seconds."
)
SOAK = Setting(variable="JOBYARD_SOAK", doc="Set to 1: the race and fault tests run with full counts (`make soak`).")
TEST_SERVERS = tuple(
    Setting(variable=f"JOBYARD_TEST_{name}_URL", doc=f"The tests use this {title} instead of starting one.")
    for name, title in (("REDIS", "Redis"), ("POSTGRES", "PostgreSQL"), ("PGBOUNCER", "PgBouncer"))
)

SETTINGS = (
    STORE,
    APP,
    LOG_LEVEL,
    CONCURRENCY,
    LEASE_SECONDS,
    SHUTDOWN_TIMEOUT,
    REDIS_PASSWORD,
    POSTGRES_PASSWORD,
    NO_COLOR,
    DEMO_SECONDS,
    SOAK,
    *TEST_SERVERS,
)

# Names that start like this are ours: one that we do not know is a typing mistake.
OURS = "JOBYARD_"
# Set by the shell completion that click installs.
COMPLETION = "_COMPLETE"


def unknown_variables(environment: Mapping[str, str], settings: Iterable[Setting] = SETTINGS) -> list[str]:
    """A warning for each variable that looks like a setting and is none.

    >>> unknown_variables({"JOBYARD_STOER": "x", "HOME": "/root", "JOBYARD_APP": "a:b"})
    ['There is no setting JOBYARD_STOER; it has no effect. Did you mean JOBYARD_STORE?']
    """
    known = [setting.variable for setting in settings]
    warnings = []
    for name in sorted(environment):
        if name.startswith(OURS) and name not in known and not name.endswith(COMPLETION):
            near = difflib.get_close_matches(name, known, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            warnings.append(f"There is no setting {name}; it has no effect.{hint}")
    return warnings
