"""The settings of the sandbox, as data."""

from __future__ import annotations

from jobyard.config.setting import Setting
from jobyard.executors.sandbox.bounds import Bounds

ENABLED = Setting(
    variable="JOBYARD_SANDBOX__ENABLED",
    key="sandbox.enabled",
    flag="--sandbox",
    default="false",
    doc="Whether a worker runs programs that people hand in at POST /execute; see howto/code-runner.md.",
)
SOCKET = Setting(
    variable="JOBYARD_SANDBOX__SOCKET",
    key="sandbox.socket",
    flag="--socket",
    doc="Where a sandbox daemon (`jobyard sandboxd`) listens. Without it each worker starts one of its own.",
)
MIN_TIER = Setting(
    variable="JOBYARD_SANDBOX__MIN_TIER",
    key="sandbox.min_tier",
    flag="--min-tier",
    default="B",
    doc="The least that programs must be held by: A (namespaces made as root, control groups), B (namespaces of an "
    "ordinary user) or C (filter and Landlock, Python only). Where the machine has less, nothing is run.",
)
SLOTS = Setting(
    variable="JOBYARD_SANDBOX__SLOTS",
    key="sandbox.slots",
    flag="--slots",
    doc="How many programs a daemon runs at a time. Without it, as many as its worker has slots for jobs.",
)
LANGUAGES = Setting(
    variable="JOBYARD_SANDBOX__LANGUAGES",
    key="sandbox.languages",
    flag="--languages",
    doc="A languages.yaml of your own, in place of the one that comes with the package.",
)
POOL = Setting(
    variable="JOBYARD_SANDBOX__POOL",
    key="sandbox.pool",
    flag="--pool",
    doc="How many interpreters of each language wait warm; without it as the languages say.",
)
ALLOW_USERS = Setting(
    variable="JOBYARD_SANDBOX__ALLOW_USERS",
    key="sandbox.allow_users",
    doc="Who may use the daemon that `jobyard sandboxd` starts, beside root and whoever started it; with commas "
    "between them.",
)


def _most(word: str, doc: str) -> Setting:
    default = f"{getattr(Bounds(), word):g}" if word == "max_time_seconds" else str(getattr(Bounds(), word))
    variable = f"JOBYARD_SANDBOX__{word.upper()}"
    return Setting(variable=variable, key=f"sandbox.{word}", default=default, doc=doc)


BOUNDS = (
    _most("max_time_seconds", "The longest time limit that a program may be given."),
    _most("max_memory_mb", "The most memory that a program may be given."),
    _most("max_processes", "The most processes and threads."),
    _most("max_files_open", "The most open files of a process."),
    _most("max_output_bytes", "The most output that is kept: of stdout, and again of stderr."),
    _most("max_disk_mb", "The most room in the program's own folder."),
    _most("max_disk_files", "The most files in it."),
    _most("max_source_bytes", "The longest program."),
    _most("max_input_bytes", "The longest standard input."),
    _most("max_files", "How many files may come with a program, and be brought back."),
    _most("max_file_bytes", "How large those that come with it may be together; and those that are brought back."),
    _most("max_batch", "How many inputs one batch may have."),
)
TESTING = Setting(
    variable="JOBYARD_SANDBOX_TESTING",
    doc="Set: a sandbox daemon may be told to leave a layer out, to test the others.",
)
SANDBOX = (ENABLED, SOCKET, MIN_TIER, SLOTS, LANGUAGES, POOL, ALLOW_USERS, *BOUNDS, TESTING)
