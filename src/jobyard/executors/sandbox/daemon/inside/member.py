"""One member: an init that is PID 1 of its own namespaces, and below it the process that will be the program.

Everything up to the filter happens before a request is known. What can fail is said on the status socket, and then the
run never begins.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple, NoReturn

from jobyard.executors.sandbox.daemon.inside import collect, kernel, program
from jobyard.executors.sandbox.daemon.inside import protocol as wire

_CODE_FD, _STATUS_FD = 3, 4
_HIGH_FD = 64
_PID_PLACE: Final = (0x7FEDCBA9).to_bytes(4, "little")  # stands for the program's own pid in the filter
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


class Order(NamedTuple):
    """What the zygote was told about one member."""

    kind: int
    uid: int
    disk_bytes: int
    disk_files: int


def begin(config: dict[str, Any], order: Order, descriptors: list[int]) -> program.Program:
    """Runs in the new process; comes back only in the program's process of the Python kind."""
    status = descriptors[wire.STATUS]
    step = "start"
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a handler would make the init reachable by its program
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        kernel.die_with_parent()
        step = "control groups"
        _join(descriptors[wire.GROUPS :])
        for name, act in _steps(config, order):
            step = name
            act()
        step = "fork"
        child = os.fork()
    except BaseException as error:
        _fail(status, step, error)
    if child:
        _be_init(status, child, config)
    return _be_program(config, order, descriptors)


def _steps(config: dict[str, Any], order: Order) -> list[tuple[str, Callable[[], object]]]:
    steps: list[tuple[str, Callable[[], object]]] = []
    if config["namespaces"]:
        if config["user_namespace"]:
            steps.append(("user namespace", lambda: map_user(order.uid, 0)))
        else:
            steps.append(("control group namespace", lambda: kernel.unshare(kernel.NEWCGROUP)))
        steps += [
            ("host name", lambda: kernel.set_hostname("box")),
            ("folders", lambda: _mount(order)),
        ]
    steps.append(("limits", lambda: _limit(order)))
    if config["set_uid"]:
        steps.append(("user", lambda: _become(order.uid)))
    steps += [
        ("capabilities", kernel.drop_capabilities),
        ("privileges", kernel.no_new_privileges),
        ("privacy", lambda: kernel.set_dumpable(False)),
        ("session", os.setsid),
    ]
    return steps


def _join(groups: list[int]) -> None:
    for descriptor in groups:
        os.write(descriptor, b"0")
        os.close(descriptor)


def map_user(inside: int, outside: int) -> None:
    """In a user namespace of our own: be this one user, and no other."""
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{inside} {outside} 1"),
        ("gid_map", f"{inside} {outside} 1"),
    ):
        descriptor = os.open(f"/proc/self/{name}", os.O_WRONLY)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)


def _mount(order: Order) -> None:
    flags = kernel.MS_NOSUID | kernel.MS_NODEV
    kernel.mount("proc", "/proc", "proc", flags | kernel.MS_NOEXEC, "subset=pid,hidepid=2")
    owner = f"uid={order.uid},gid={order.uid}"
    size = f"size={order.disk_bytes},nr_inodes={order.disk_files + 3}"  # the three folders here are not the program's
    folder = wire.PROGRAM_FOLDER
    kernel.mount("tmpfs", folder, "tmpfs", flags, f"{size},mode=0700,{owner}")
    for part, mode, target in (("tmp", 0o1777, "/tmp"), ("box", 0o700, folder)):  # noqa: S108
        path = f"{folder}/{part}"
        os.mkdir(path)
        os.chmod(path, mode)
        os.chown(path, order.uid, order.uid)
        kernel.mount(path, target, "", kernel.MS_BIND)
    os.chdir(folder)


def _limit(order: Order) -> None:
    for which, most in _MOST.items():
        _, hard = resource.getrlimit(which)
        value = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(which, (value, value))
    if order.disk_bytes:
        resource.setrlimit(resource.RLIMIT_FSIZE, (order.disk_bytes, order.disk_bytes))


def _become(uid: int) -> None:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def _say(status: int, what: bytes, body: bytes = b"") -> None:
    data = memoryview(wire.STATUS_HEAD.pack(what, len(body)) + body)
    while data:
        data = data[os.write(status, data) :]


def _fail(status: int, step: str, error: BaseException) -> NoReturn:
    with contextlib.suppress(BaseException):
        _say(status, wire.FAILED, f"{step}: {error}".encode(errors="replace"))
    os._exit(1)


# The init


def _be_init(status: int, child: int, config: dict[str, Any]) -> NoReturn:
    try:
        os.dup2(_above(status), _STATUS_FD)
        os.closerange(_STATUS_FD + 1, 1 << 20)
        os.closerange(_CODE_FD, _STATUS_FD)
        if config["filter"] and not config["pid_in_filter"]:
            kernel.load_filter(config["filter"])
        if not config["namespaces"]:
            _send_pidfd(child)
        code, number, used, peak = _wait(child)
        body = wire.EXIT_BODY.pack(code, number, used, peak, time.monotonic_ns())
        _say(_STATUS_FD, wire.EXIT, body)
        if config["namespaces"]:
            collect.collect(_STATUS_FD)
    except BaseException as error:
        _fail(_STATUS_FD, "init", error)
    os._exit(0)


def _send_pidfd(child: int) -> None:
    """Without a pid namespace the program's own process is what must be killed: the supervisor needs a hold on it."""
    pidfd = os.pidfd_open(child)
    with socket.socket(fileno=os.dup(_STATUS_FD)) as status:
        socket.send_fds(status, [wire.STATUS_HEAD.pack(b"P", 0)], [pidfd])
    os.close(pidfd)


def _wait(child: int) -> tuple[int, int, int, int]:
    """Bury everybody who is left to PID 1, until the program itself has ended."""
    while True:
        pid, status, usage = os.wait4(-1, 0)
        if pid != child:
            continue
        used = int((usage.ru_utime + usage.ru_stime) * 1e6)
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            return 128 + number, number, used, usage.ru_maxrss
        return os.WEXITSTATUS(status), 0, used, usage.ru_maxrss


# The program's process


def _be_program(config: dict[str, Any], order: Order, descriptors: list[int]) -> program.Program:
    step = "descriptors"
    try:
        _place(descriptors)
        step = "privacy"
        kernel.set_dumpable(True)
        kernel.die_with_parent()
        if config["namespaces"]:
            step = "memory order"
            _go_first()
        step = "filter"
        if config["landlock"] is not None:
            kernel.landlock_restrict(config["landlock"])
        if config["filter"]:
            kernel.load_filter(config["filter"].replace(_PID_PLACE, os.getpid().to_bytes(4, "little")))
        step = "kind"
        kind = config["kinds"][order.kind]
        if kind["type"] == "driver":
            os.set_inheritable(_CODE_FD, True)
            os.set_inheritable(_STATUS_FD, True)
            os.execve(kind["argv"][0], kind["argv"], dict(os.environ))
        prepared = program.prepare_python() if kind["type"] == "python" else None
        _say(_STATUS_FD, wire.READY)
        os.close(_STATUS_FD)
    except BaseException as error:
        _fail(_STATUS_FD, step, error)
    return program.receive(_CODE_FD, prepared)


def _place(descriptors: list[int]) -> None:
    """Input and outputs at 0, 1, 2, then code and status; nothing else is open."""
    order = (wire.STDIN, wire.STDOUT, wire.STDERR, wire.CODE, wire.STATUS)
    high = [_above(descriptors[which]) for which in order]
    for target, source in enumerate(high):
        os.dup2(source, target, inheritable=target < _CODE_FD)
    os.closerange(_STATUS_FD + 1, 1 << 20)
    sys.stdout.flush()


def _above(descriptor: int) -> int:
    return int(fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _HIGH_FD))


def _go_first() -> None:
    """Out of memory, it is the program that dies, not its init."""
    descriptor = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
    os.write(descriptor, b"1000")
    os.close(descriptor)
