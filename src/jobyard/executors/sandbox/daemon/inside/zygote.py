"""The clean process that members are copies of. It sees descriptors and integers, never a byte of a request."""

from __future__ import annotations

import _sitebuiltins
import array
import builtins
import contextlib
import fcntl
import gc
import importlib
import os
import resource
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from jobyard.executors.sandbox.daemon.inside import kernel, member, program, root
from jobyard.executors.sandbox.daemon.inside import protocol as wire

_MOST_DESCRIPTORS = 16
_RESERVED = 8
_MOST = {
    resource.RLIMIT_CORE: 0,
    resource.RLIMIT_MEMLOCK: 64 << 10,
    resource.RLIMIT_MSGQUEUE: 0,
    resource.RLIMIT_NICE: 0,
    resource.RLIMIT_RTPRIO: 0,
    resource.RLIMIT_SIGPENDING: 256,
    resource.RLIMIT_NOFILE: 4096,
    resource.RLIMIT_NPROC: 1024,
}


def run(config: dict[str, Any], control: socket.socket) -> program.Program:
    """Serve orders until the supervisor is gone; comes back only in a program's process."""
    control = _move_up(control)
    try:
        _get_ready(config)
    except BaseException as error:
        control.send(wire.MADE.pack(0, 1) + f"{type(error).__name__}: {error}".encode(errors="replace")[:1000])
        os._exit(1)
    control.send(wire.MADE.pack(0, 0))
    while True:
        made = _serve(config, control)
        if made is not None:
            return made


def _get_ready(config: dict[str, Any]) -> None:
    kernel.die_with_parent()
    if config["namespaces"]:
        if config["user_namespace"]:
            member.map_user(0, config["uid"])
        root.build(config["root"])
        kernel.set_hostname("box")
    if config["set_uid"]:
        os.setgroups([])
    kernel.drop_bounding_set()
    kernel.no_new_privileges()  # what holds for the zygote holds for every member
    _limit()
    if config["landlock"] is not None:
        config["landlock"] = root.landlock(config["landlock"])
    config["filter_bytes"] = config["filter"]
    config["filter"] = kernel.Filter(config["filter"]) if config["filter"] else None
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel buries members; their pidfds tell the supervisor
    _preload(config["preload"])
    program.prepare_python()
    config["base_bytes"] = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    for name in [name for name in sys.modules if name.startswith("jobyard")]:
        del sys.modules[name]  # they have what they need of each other
    gc.collect()
    gc.freeze()


def _move_up(control: socket.socket) -> socket.socket:
    """Members want 0 to 4 for themselves: what is sent to us must not come to lie there."""
    moved = socket.socket(fileno=fcntl.fcntl(control.fileno(), fcntl.F_DUPFD_CLOEXEC, _RESERVED))
    control.close()
    nothing = fcntl.fcntl(os.open("/dev/null", os.O_RDWR), fcntl.F_DUPFD_CLOEXEC, _RESERVED)
    for descriptor in range(_RESERVED):
        os.dup2(nothing, descriptor, inheritable=False)
    os.close(nothing)
    return moved


def _serve(config: dict[str, Any], control: socket.socket) -> program.Program | None:
    room = socket.CMSG_SPACE(_MOST_DESCRIPTORS * 4)
    data, ancillary, _, _ = control.recvmsg(wire.ORDER.size, room)
    if not data:
        os._exit(0)
    descriptors = array.array("i")
    for _, _, body in ancillary:
        descriptors.frombytes(body)
    serial, *rest = wire.ORDER.unpack(data)
    try:
        pid, pidfd = kernel.clone(_flags(config))
    except OSError as error:
        control.send(wire.MADE.pack(serial, error.errno or 1))
        _close(descriptors)
        return None
    if pid == 0:
        control.close()
        return member.begin(config, member.Order(*rest), list(descriptors))
    socket.send_fds(control, [wire.MADE.pack(serial, 0)], [pidfd])
    os.close(pidfd)
    _close(descriptors)
    return None


def _flags(config: dict[str, Any]) -> int:
    if not config["namespaces"]:
        return 0
    flags = kernel.NEWPID | kernel.NEWNS | kernel.NEWNET | kernel.NEWIPC | kernel.NEWUTS
    return flags | kernel.NEWUSER if config["user_namespace"] else flags


def _close(descriptors: array.array[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _limit() -> None:
    """What no member may ever raise; each run lowers it further."""
    for which, most in _MOST.items():
        _, hard = resource.getrlimit(which)
        value = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(which, (value, value))


def _preload(names: list[str]) -> None:
    for name in names:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    # What the site module would have given, without its look at the disk.
    for word in ("quit", "exit"):
        setattr(builtins, word, _sitebuiltins.Quitter(word, "Ctrl-D (i.e. EOF)"))
    builtins.help = _sitebuiltins._Helper()
