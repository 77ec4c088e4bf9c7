"""The zygote's parent, outside of all namespaces: cleans up when the daemon dies, even by SIGKILL."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
from typing import Any, NoReturn

from jobyard.sandbox.daemon.inside import kernel, program, zygote

_REMOVE_TIMEOUT_S = 5.0


def run(config: dict[str, Any]) -> program.CompiledProgram:
    """Return only in the process of a Python program."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, 0)  # the daemon may run at a higher priority; programs must not
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
        os.close(config["parent_pipe"])
        return zygote.run(config, socket.socket(fileno=config["control"]))
    os.close(config["control"])
    return _watch(pid, pidfd, config)


def _become(uid: int) -> None:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    kernel.set_dumpable(True)  # otherwise uid_map and gid_map would belong to root


def _watch(pid: int, pidfd: int, config: dict[str, Any]) -> NoReturn:
    poll = select.poll()
    poll.register(config["parent_pipe"], select.POLLIN)
    poll.register(pidfd, select.POLLIN)
    poll.poll()
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    os.waitpid(pid, 0)
    # The zygote may have noticed the daemon's death first: the kernel closes the descriptors one after the other. A
    # daemon that lives closes the pipe, too, when it has lost its zygote.
    poll.unregister(pidfd)
    poll.poll()
    remove_groups(config["groups"])
    os._exit(0)


def remove_groups(folders: list[str]) -> None:
    """Remove each folder's cgroups, then the folder. A cgroup can be removed once its last process has been reaped."""
    until = time.monotonic() + _REMOVE_TIMEOUT_S
    left = list(folders)
    while left and time.monotonic() < until:
        left = [folder for folder in left if not _remove(folder)]
        if left:
            time.sleep(0.005)  # the kernel reaps killed processes within milliseconds; without a pause this would spin


def _remove(folder: str) -> bool:
    try:
        names = [entry.path for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return True
    for path in [*names, folder]:
        with contextlib.suppress(OSError):
            os.rmdir(path)
    return not os.path.exists(folder)
