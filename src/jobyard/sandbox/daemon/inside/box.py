"""One member: an init that is PID 1 of its own namespaces, and beside it the process that will be the program.

As root the init is nothing but a name (kernel.new_namespaces) and the zygote is the program's parent. In a user
namespace the init is a copy of the zygote: it runs these few lines only, without capabilities, and nobody may look into
it, so it needs no filter.

Everything up to the filter happens before a request is known. What can fail is said on the status socket, and then the
run never begins. The two are copies of the zygote, and so is every page they write to: each does as little as it can.
"""

from __future__ import annotations

import _signal
import contextlib
import os
import resource
import signal
import socket
import time
from typing import Any, Final, NamedTuple, NoReturn

from jobyard.sandbox.daemon.inside import kernel, program
from jobyard.sandbox.daemon.inside import protocol as wire

SHARED: Final = kernel.NEWNET | kernel.NEWIPC | kernel.NEWUTS  # of a member's init and its program
_CODE_FD, _STATUS_FD = 3, 4
_SIGCHLD, _DEFAULT = int(signal.SIGCHLD), _signal.SIG_DFL
_PID_PLACE: Final = (0x7FEDCBA9).to_bytes(4, "little")  # stands for the program's own pid in the filter


class SpawnRequest(NamedTuple):
    """What the zygote was told about one member."""

    kind: int
    uid: int
    disk_bytes: int
    disk_files: int
    files_open: int  # of a driver, which cannot lower it when the program comes
    rehearse: int  # nobody waits for it yet


def begin(config: dict[str, Any], order: SpawnRequest, descriptors: list[int]) -> program.CompiledProgram:
    """Runs in the new process; comes back only in the program's process of the Python kind."""
    status = descriptors[wire.STATUS]
    step = "start"
    try:
        if config["user_namespace"]:
            step = "user namespace"
            map_user(order.uid, 0)
        _signal.signal(_SIGCHLD, _DEFAULT)
        step = "fork"
        into = descriptors[wire.GROUPS] if config["clone_into_group"] else -1
        child, _ = kernel.clone(0, into)
        if child:
            step = "init"
            _be_init(status, child, config, order)
    except BaseException as error:
        _fail(status, step, error)
    return be_program(config, order, descriptors)


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


def _drop(config: dict[str, Any], uid: int) -> None:
    """No user but this, no capability, no way to another."""
    if config["set_uid"]:
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)  # the capabilities go with it
    else:
        kernel.drop_capabilities()


def _say(status: int, what: bytes, body: bytes = b"") -> None:
    data = memoryview(wire.STATUS_HEAD.pack(what, len(body)) + body)
    while data:
        data = data[os.write(status, data) :]


def _fail(status: int, step: str, error: BaseException) -> NoReturn:
    with contextlib.suppress(BaseException):
        _say(status, wire.FAILED, f"{step}: {error}".encode(errors="replace"))
    os._exit(1)


# The init


def _be_init(status: int, child: int, config: dict[str, Any], order: SpawnRequest) -> NoReturn:
    _drop(config, order.uid)
    kernel.set_dumpable(False)
    if not config["namespaces"]:
        kernel.die_with_parent()  # not before: a change of user takes it back
    os.dup2(status, _STATUS_FD)
    os.closerange(_STATUS_FD + 1, 1 << 20)
    ended = _wait(child)
    if config["namespaces"]:
        _clear()
    os.write(_STATUS_FD, wire.EXIT_FRAME.pack(wire.EXIT, wire.EXIT_BODY.size, *ended))
    os._exit(0)


def _wait(child: int) -> tuple[int, int, int, int, int]:
    """Bury everybody who is left to PID 1, until the program itself has ended."""
    while True:
        pid, status, usage = os.wait4(-1, 0)
        if pid == child:
            break
    return account(status, usage)


def account(status: int, usage: resource.struct_rusage) -> tuple[int, int, int, int, int]:
    """How a process ended: exit code, signal, microseconds of processor, peak in KiB, and when."""
    used = int((usage.ru_utime + usage.ru_stime) * 1e6)
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    code = 128 + number if number else os.WEXITSTATUS(status)
    return code, number, used, usage.ru_maxrss, time.monotonic_ns()


def _clear() -> None:
    """When the supervisor hears of the end, nothing of the program is left but its files."""
    if os.getpid() != 1:
        raise OSError("not PID 1 of a namespace")  # or this would reach everybody
    if kernel.kill_all():
        with contextlib.suppress(ChildProcessError):
            while True:
                os.wait4(-1, 0)


# The program's process


def be_program(
    config: dict[str, Any], order: SpawnRequest, descriptors: list[int], init: int = -1
) -> program.CompiledProgram:
    status = descriptors[wire.STATUS]
    step = "control groups"
    try:
        if not config["clone_into_group"]:
            for descriptor in descriptors[wire.GROUPS :]:
                os.write(descriptor, b"0")
        if init >= 0:
            step = "namespaces"
            kernel.enter(init, SHARED)
        if config["namespaces"]:
            step = "folders"
            kernel.unshare(kernel.NEWCGROUP)
            _mount(order)
        step = "user"
        if config["priority"] < 0:  # more than a program may have; a daemon that has less gives what it has
            os.setpriority(os.PRIO_PROCESS, 0, 0)
        _drop(config, order.uid)
        os.setsid()
        kernel.set_dumpable(True)
        if config["landlock"] is not None:
            step = "Landlock"
            kernel.die_with_parent()
            kernel.landlock_restrict(config["landlock"])
        step = "descriptors"
        _place(descriptors)
        status = _STATUS_FD
        if not config["has_namespace_pool"]:
            _send_own_pidfd()
        step = "filter"
        _filter(config)
        step = "kind"
        prepared = _prepare(config["kinds"][order.kind], order, config["namespaces"])
        used = time.clock_gettime_ns(time.CLOCK_PROCESS_CPUTIME_ID) // 1000
        os.write(_STATUS_FD, wire.READY_FRAME.pack(wire.READY, wire.READY_BODY.size, used, time.monotonic_ns()))
        os.close(_STATUS_FD)
    except BaseException as error:
        _fail(status, step, error)
    return program.receive(_CODE_FD, prepared, config["base_bytes"])


def _send_own_pidfd() -> None:
    own = os.pidfd_open(os.getpid())
    with socket.socket(fileno=os.dup(_STATUS_FD)) as link:
        socket.send_fds(link, [wire.STATUS_HEAD.pack(wire.HERE, 0)], [own])
    os.close(own)


def _mount(order: SpawnRequest) -> None:
    flags = kernel.MS_NOSUID | kernel.MS_NODEV
    kernel.mount("proc", "/proc", "proc", flags | kernel.MS_NOEXEC, "subset=pid,hidepid=2")
    options = f"size={order.disk_bytes},nr_inodes={order.disk_files + 1},mode=0700,uid={order.uid},gid={order.uid}"
    kernel.mount("tmpfs", wire.PROGRAM_FOLDER, "tmpfs", flags, options)
    os.chdir(wire.PROGRAM_FOLDER)
    resource.setrlimit(resource.RLIMIT_FSIZE, (order.disk_bytes, order.disk_bytes))


def _place(descriptors: list[int]) -> None:
    """Input and outputs at 0, 1, 2, then code and status; nothing else is open. The zygote keeps those numbers free."""
    order = (wire.STDIN, wire.STDOUT, wire.STDERR, wire.CODE, wire.STATUS)
    for target, which in enumerate(order):
        os.dup2(descriptors[which], target, inheritable=target < _CODE_FD)
    os.closerange(_STATUS_FD + 1, 1 << 20)


def _filter(config: dict[str, Any]) -> None:
    if config["pid_in_filter"]:
        own = os.getpid().to_bytes(4, "little")
        kernel.SeccompFilter(config["filter"].replace(_PID_PLACE, own)).load()
    elif config["filter"] is not None:
        config["filter"].load()


def _prepare(kind: dict[str, Any], order: SpawnRequest, has_folder: bool) -> Any:
    if kind["type"] == "driver":
        os.set_inheritable(_CODE_FD, True)
        os.set_inheritable(_STATUS_FD, True)
        resource.setrlimit(resource.RLIMIT_NOFILE, (order.files_open, order.files_open))
        os.execve(kind["argv"][0], kind["argv"], dict(os.environ))
    return program.wake(order.rehearse, has_folder) if kind["type"] == "python" else None
