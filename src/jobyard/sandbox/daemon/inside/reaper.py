"""The zygote's parent, outside of every namespace: when the supervisor dies, whatever the way, it cleans up."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
from typing import Any, NoReturn

from jobyard.sandbox.daemon.inside import kernel, program, zygote

_PATIENCE_S = 5.0


def run(config: dict[str, Any]) -> program.CompiledProgram:
    """Comes back only in a program's process."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, 0)  # the supervisor may have more; programs have what everybody has
    flags = 0
    if config["namespaces"]:
        flags = kernel.NEWPID | kernel.NEWNS | kernel.NEWNET | kernel.NEWIPC | kernel.NEWUTS
        if config["user_namespace"]:
            flags |= kernel.NEWUSER
    if config["become"] >= 0:
        _become(config["become"])
    pid, pidfd = kernel.clone(flags)
    if pid == 0:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_DFL)
        os.close(config["life"])
        return zygote.run(config, socket.socket(fileno=config["control"]))
    os.close(config["control"])
    return _keep(pid, pidfd, config)


def _become(uid: int) -> None:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    kernel.set_dumpable(True)  # or the files that map users would not be ours


def _keep(pid: int, pidfd: int, config: dict[str, Any]) -> NoReturn:
    poll = select.poll()
    poll.register(config["life"], select.POLLIN)
    poll.register(pidfd, select.POLLIN)
    supervisor_is_gone = config["life"] in dict(poll.poll())
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    os.waitpid(pid, 0)
    if supervisor_is_gone:
        remove_groups(config["groups"])
    os._exit(0)


def remove_groups(folders: list[str]) -> None:
    """Each folder's groups, then the folder. A group goes when its last process has been buried."""
    until = time.monotonic() + _PATIENCE_S
    left = list(folders)
    while left and time.monotonic() < until:
        left = [folder for folder in left if not _remove(folder)]
        if left:
            time.sleep(0.005)


def _remove(folder: str) -> bool:
    try:
        names = [entry.path for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return True
    for path in [*names, folder]:
        with contextlib.suppress(OSError):
            os.rmdir(path)
    return not os.path.exists(folder)
