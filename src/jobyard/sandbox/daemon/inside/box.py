"""Set-up of a box: an init, PID 1 of its namespaces, and the process that becomes the program.

As root, the init is a sleeping process (kernel.new_namespaces) and the zygote is the program's parent. In a user
namespace the init is a clone of the zygote: it runs only these few lines, without capabilities, and other processes
cannot inspect it, so it needs no filter.

Everything up to the filter happens before a request exists. A failure is reported on the status socket, and the run
never starts. Both processes are clones of the zygote and copy every page they write to, so each does little.
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

from jobyard.sandbox.daemon.inside import connection_limiter, kernel, program
from jobyard.sandbox.daemon.inside import protocol as wire

SHARED: Final = kernel.NEWNET | kernel.NEWIPC | kernel.NEWUTS  # shared by a box's init and its program
_CODE_FD, _STATUS_FD = 3, 4
_SIGCHLD, _DEFAULT = int(signal.SIGCHLD), _signal.SIG_DFL
_PID_PLACEHOLDER: Final = (0x7FEDCBA9).to_bytes(4, "little")  # placeholder for the program's own pid in the filter


class SpawnRequest(NamedTuple):
    """Parameters of one box."""

    kind: int
    uid: int
    disk_bytes: int
    disk_files: int
    files_open: int  # of a driver, which cannot lower it when the program arrives
    rehearse: int  # only for the pool: a box spawned for a request has no time for it


def begin(config: dict[str, Any], request: SpawnRequest, descriptors: list[int]) -> program.CompiledProgram:
    """Set up the new process. Returns only in the process of a Python program."""
    status = descriptors[wire.STATUS]
    step = "start"
    try:
        if config["user_namespace"]:
            step = "user namespace"
            map_user(request.uid, 0)
        _signal.signal(_SIGCHLD, _DEFAULT)
        step = "fork"
        into = descriptors[wire.GROUPS] if config["clone_into_group"] else -1
        child, _ = kernel.clone(0, into)
        if child:
            step = "init"
            _become_init(status, child, config, request)
    except BaseException as error:
        _fail(status, step, error)
    return become_program(config, request, descriptors)


def map_user(inside: int, outside: int) -> None:
    """Map a single user in this user namespace."""
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


def _drop_privileges(config: dict[str, Any], uid: int) -> None:
    """Give up all users but this one, and all capabilities."""
    if config["set_uid"]:
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)  # drops the capabilities, too
    else:
        kernel.drop_capabilities()


def _send_status(status: int, what: bytes, body: bytes = b"") -> None:
    data = memoryview(wire.STATUS_HEAD.pack(what, len(body)) + body)
    while data:
        data = data[os.write(status, data) :]


def _fail(status: int, step: str, error: BaseException) -> NoReturn:
    with contextlib.suppress(BaseException):
        _send_status(status, wire.FAILED, f"{step}: {error}".encode(errors="replace"))
    os._exit(1)


# The init


def _become_init(status: int, child: int, config: dict[str, Any], request: SpawnRequest) -> NoReturn:
    _drop_privileges(config, request.uid)
    kernel.set_dumpable(False)
    if not config["namespaces"]:
        kernel.die_with_parent()  # not earlier: a change of user resets it
    os.dup2(status, _STATUS_FD)
    os.closerange(_STATUS_FD + 1, 1 << 20)
    ended = _wait(child)
    if config["namespaces"]:
        _kill_remaining()
    os.write(_STATUS_FD, wire.EXIT_FRAME.pack(wire.EXIT, wire.EXIT_BODY.size, *ended))
    os._exit(0)


def _wait(child: int) -> tuple[int, int, int, int, int]:
    """Reap orphans until the program itself has exited."""
    while True:
        pid, status, usage = os.wait4(-1, 0)
        if pid == child:
            break
    return exit_status(status, usage)


def exit_status(status: int, usage: resource.struct_rusage) -> tuple[int, int, int, int, int]:
    """Exit code, signal, CPU time in microseconds, peak memory in KiB, and monotonic time of exit in ns."""
    used = int((usage.ru_utime + usage.ru_stime) * 1e6)
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    code = 128 + number if number else os.WEXITSTATUS(status)
    return code, number, used, usage.ru_maxrss, time.monotonic_ns()


def _kill_remaining() -> None:
    """Kill the program's remaining processes, so that only its files are left when the daemon learns of the exit."""
    if os.getpid() != 1:
        raise OSError("not PID 1 of a namespace")  # outside of one, kill_all would kill unrelated processes
    if kernel.kill_all():
        with contextlib.suppress(ChildProcessError):
            while True:
                os.wait4(-1, 0)


# The program's process


def become_program(
    config: dict[str, Any], request: SpawnRequest, descriptors: list[int], init: int = -1
) -> program.CompiledProgram:
    status = descriptors[wire.STATUS]
    step = "control groups"
    try:
        if not config["clone_into_group"]:
            for descriptor in descriptors[wire.GROUPS :]:
                os.write(descriptor, b"0")
        if init >= 0:
            step = "namespaces"
            _signal.set_wakeup_fd(-1)  # the zygote's
            _signal.signal(_SIGCHLD, _DEFAULT)
            kernel.enter(init, SHARED)
        if config["namespaces"]:
            step = "folders"
            kernel.unshare(kernel.NEWCGROUP)
            _mount(request)
        step = "user"
        if config["priority"] < 0:  # a program must not keep the zygote's priority; a lower one stays
            os.setpriority(os.PRIO_PROCESS, 0, 0)
        _drop_privileges(config, request.uid)
        if config["max_processes"]:
            resource.setrlimit(resource.RLIMIT_NPROC, (config["max_processes"],) * 2)
        os.setsid()
        kernel.set_dumpable(True)
        if config["landlock"] is not None:
            step = "Landlock"
            kernel.die_with_parent()
            kernel.landlock_restrict(config["landlock"])
        if config["limiter"] is not None:
            step = "connections"
            connection_limiter.register(config["limiter"], config["connect_filter"])
        step = "descriptors"
        _arrange_descriptors(descriptors)
        status = _STATUS_FD
        if not config["has_namespace_pool"]:
            _send_own_pidfd()
        step = "filter"
        _load_filter(config)
        step = "kind"
        prepared = _prepare(config["kinds"][request.kind], request, config["namespaces"])
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


def _mount(request: SpawnRequest) -> None:
    flags = kernel.MS_NOSUID | kernel.MS_NODEV
    kernel.mount("proc", "/proc", "proc", flags | kernel.MS_NOEXEC, "subset=pid,hidepid=2")
    options = (
        f"size={request.disk_bytes},nr_inodes={request.disk_files + 1},mode=0700,uid={request.uid},gid={request.uid}"
    )
    kernel.mount("tmpfs", wire.PROGRAM_FOLDER, "tmpfs", flags, options)
    os.chdir(wire.PROGRAM_FOLDER)
    resource.setrlimit(resource.RLIMIT_FSIZE, (request.disk_bytes, request.disk_bytes))


def _arrange_descriptors(descriptors: list[int]) -> None:
    """Put stdin, stdout, stderr, code and status at 0 to 4 and close all others. The zygote keeps 0 to 4 free."""
    sources = (wire.STDIN, wire.STDOUT, wire.STDERR, wire.CODE, wire.STATUS)
    for target, which in enumerate(sources):
        os.dup2(descriptors[which], target, inheritable=target < _CODE_FD)
    os.closerange(_STATUS_FD + 1, 1 << 20)


def _load_filter(config: dict[str, Any]) -> None:
    if config["pid_in_filter"]:
        own = os.getpid().to_bytes(4, "little")
        kernel.SeccompFilter(config["filter"].replace(_PID_PLACEHOLDER, own)).load()
    elif config["filter"] is not None:
        config["filter"].load()


def _prepare(kind: dict[str, Any], request: SpawnRequest, has_folder: bool) -> Any:
    if kind["type"] == "driver":
        os.set_inheritable(_CODE_FD, True)
        os.set_inheritable(_STATUS_FD, True)
        resource.setrlimit(resource.RLIMIT_NOFILE, (request.files_open, request.files_open))
        os.execve(kind["argv"][0], kind["argv"], dict(os.environ))
    return program.renew(request.rehearse, has_folder) if kind["type"] == "python" else None
