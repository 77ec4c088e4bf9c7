"""Starts the program of a runner in a session of its own, under a shell that records its number and its exit code."""

from __future__ import annotations

import os
import re
import subprocess

from jobyard.github.process.folder import Account, RunnerFolder
from jobyard.github.process.processes import MARKER, ProcessIdentity, identify

# Of the manager's environment, which may contain secrets, a runner gets these only.
PASSED_ON = re.compile(r"PATH|LANG|LC_\w+|TZ|(?i:https?_proxy|no_proxy)|SSL_CERT_(FILE|DIR)|NODE_EXTRA_CA_CERTS")
# It records its own process number, so that a manager that is killed right now finds it again, and its exit code.
# The traps keep it alive until run.sh has ended; they are not inherited.
SUPERVISE = """
control=$1
trap : TERM INT HUP
set -- $(cat /proc/$$/stat)
printf '%s %s\\n' "$1" "${22}" > "$control/pid.new" && mv "$control/pid.new" "$control/pid"
./run.sh
code=$?
printf '%s\\n' "$code" > "$control/exit.new" && mv "$control/exit.new" "$control/exit"
exit "$code"
"""


def start_runner(folder: RunnerFolder, uid: str, account: Account, jit: str) -> ProcessIdentity | None:
    """The process; None if it has already ended and is gone."""
    is_other = account.is_other
    with folder.log.open("ab") as output:
        process = subprocess.Popen(
            ["/bin/sh", "-c", SUPERVISE, "runner", str(folder.control)],
            cwd=folder.runner,
            env=_environment(folder, uid, account, jit),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            user=account.uid if is_other else None,
            group=account.gid if is_other else None,
            extra_groups=os.getgrouplist(account.name, account.gid) if is_other else None,
        )
    process.returncode = 0  # it may outlive this object; `reap` waits for it
    return identify(process.pid)


def _environment(folder: RunnerFolder, uid: str, account: Account, jit: str) -> dict[str, str]:
    passed = {name: value for name, value in os.environ.items() if PASSED_ON.fullmatch(name)}
    return passed | {
        "HOME": str(folder.home),
        "USER": account.name,
        "LOGNAME": account.name,
        "RUNNER_MANUALLY_TRAP_SIG": "1",
        "ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE": "1",
        "ACTIONS_RUNNER_INPUT_JITCONFIG": jit,
        MARKER: uid,
    }
