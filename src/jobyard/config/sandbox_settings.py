"""The settings of the sandbox as data."""

from __future__ import annotations

from jobyard.config.setting import Setting
from jobyard.executors.sandbox.bounds import Bounds

ENABLED = Setting(
    variable="JOBYARD_SANDBOX__ENABLED",
    key="sandbox.enabled",
    flag="--sandbox",
    default="false",
    doc="Whether workers run the programs that are submitted to POST /execute; see howto/code-runner.md.",
)
SOCKET = Setting(
    variable="JOBYARD_SANDBOX__SOCKET",
    key="sandbox.socket",
    flag="--socket",
    doc="The socket of a sandbox daemon (`jobyard sandboxd`). Not set: each worker starts its own.",
)
MIN_TIER = Setting(
    variable="JOBYARD_SANDBOX__MIN_TIER",
    key="sandbox.min_tier",
    flag="--min-tier",
    default="B",
    doc="The weakest isolation tier to accept: A (namespaces made as root, control groups), B (namespaces of an "
    "ordinary user) or C (filter and Landlock, Python only). If the machine offers less, no program runs.",
)
SLOTS = Setting(
    variable="JOBYARD_SANDBOX__SLOTS",
    key="sandbox.slots",
    flag="--slots",
    doc="How many programs a daemon runs at a time. Not set: the concurrency of its worker.",
)
LANGUAGES = Setting(
    variable="JOBYARD_SANDBOX__LANGUAGES",
    key="sandbox.languages",
    flag="--languages",
    doc="A languages.yaml that replaces the one of the package.",
)
POOL = Setting(
    variable="JOBYARD_SANDBOX__POOL",
    key="sandbox.pool",
    flag="--pool",
    doc="How many warm interpreters to keep per language. Not set: as in languages.yaml.",
)
ALLOW_USERS = Setting(
    variable="JOBYARD_SANDBOX__ALLOW_USERS",
    key="sandbox.allow_users",
    doc="The users that may connect to `jobyard sandboxd`, separated by commas, besides root and its own user.",
)


def _maximum(word: str, doc: str) -> Setting:
    default = f"{getattr(Bounds(), word):g}" if word == "max_time_seconds" else str(getattr(Bounds(), word))
    variable = f"JOBYARD_SANDBOX__{word.upper()}"
    return Setting(variable=variable, key=f"sandbox.{word}", default=default, doc=doc)


BOUNDS = (
    _maximum("max_time_seconds", "The longest time limit that a request may set."),
    _maximum("max_memory_mb", "The most memory that a request may set."),
    _maximum("max_processes", "The most processes and threads."),
    _maximum("max_files_open", "The most open files of a process."),
    _maximum("max_output_bytes", "The most output to keep, for each of stdout and stderr."),
    _maximum("max_disk_mb", "The most disk space for the working folder."),
    _maximum("max_disk_files", "The most files in the working folder."),
    _maximum("max_source_bytes", "The longest program."),
    _maximum("max_input_bytes", "The longest standard input."),
    _maximum("max_files", "The most files to send with a program, and to bring back."),
    _maximum("max_file_bytes", "The total size of the files to send, and of those to bring back."),
    _maximum("max_batch", "The most inputs of one batch."),
)
TESTING = Setting(
    variable="JOBYARD_SANDBOX_TESTING", doc="Set: a request may disable a layer of the sandbox, to test the others."
)
SANDBOX = (ENABLED, SOCKET, MIN_TIER, SLOTS, LANGUAGES, POOL, ALLOW_USERS, *BOUNDS, TESTING)
