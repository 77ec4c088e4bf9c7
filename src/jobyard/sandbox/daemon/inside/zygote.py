"""The zygote: a clean process that boxes are cloned from. It receives descriptors and integers, never request data."""

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
import select
import signal
import socket
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jobyard.sandbox.daemon.inside import box, connection_limiter, huge_pages, kernel, program, root
from jobyard.sandbox.daemon.inside import namespace_pool as namespace_pools
from jobyard.sandbox.daemon.inside import protocol as wire

_ANCILLARY_BYTES = socket.CMSG_SPACE(16 * 4)
_STACK_BYTES = 1 << 20
_PRIORITY = -5
_RESERVED = 8
_HARD_LIMITS = {
    resource.RLIMIT_CORE: 1,  # with 0, the host would still start a core dump helper that reads from a pipe
    resource.RLIMIT_MEMLOCK: 64 << 10,
    resource.RLIMIT_MSGQUEUE: 0,
    resource.RLIMIT_NICE: 0,
    resource.RLIMIT_RTPRIO: 0,
    resource.RLIMIT_SIGPENDING: 256,
    resource.RLIMIT_NOFILE: 4096,
    resource.RLIMIT_NPROC: 1024,
}
# Processes of the user that only the zygote may create, where its programs have the same one: their threads must not
# keep the next box from starting.
_PROCESS_RESERVE = 256


def run(config: dict[str, Any], control: socket.socket) -> program.CompiledProgram:
    """Serve spawn requests until the daemon is gone. Returns only in the process of a Python program."""
    control = _move_up(control)
    try:
        namespace_pool = _set_up(config, control)
    except BaseException as error:
        control.send(wire.SPAWNED.pack(0, 1) + f"{type(error).__name__}: {error}".encode(errors="replace")[:1000])
        os._exit(1)
    control.send(wire.SPAWNED.pack(0, 0))
    server = _ZygoteServer(config, control, namespace_pool)
    kernel.keep(server)
    return server.serve()


def _set_up(config: dict[str, Any], control: socket.socket) -> socket.socket | None:
    kernel.die_with_parent()
    if config["namespaces"]:
        if config["user_namespace"]:
            box.map_user(0, config["uid"])
        root.build(config["root"])
        kernel.set_hostname("box")
    if config["set_uid"]:
        os.setgroups([])
    kernel.drop_bounding_set()
    kernel.no_new_privileges()  # inherited by every box
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, _PRIORITY)  # spawning and reaping are on the path of every run
    config["priority"] = os.getpriority(os.PRIO_PROCESS, 0)
    if not config["has_groups"]:
        kernel.no_huge_pages()
        kernel.one_malloc_arena()
        threading.stack_size(_STACK_BYTES)  # stacks count against the address space, which limits memory here
    _limit()
    processes, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    config["max_processes"] = processes - min(_PROCESS_RESERVE, processes // 4) if config["shares_user"] else 0
    if config["landlock"] is not None:
        config["landlock"] = root.landlock(config["landlock"])
    zygote_filter, box_filter, connect_filter = config.pop("filters")
    is_final = box_filter and not config["pid_in_filter"]
    config["filter"] = kernel.SeccompFilter(box_filter) if is_final else box_filter or None
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps inits; the daemon sees their end by pidfd
    namespace_pool = None
    config["limiter"] = None
    if connect_filter:
        config["connect_filter"] = kernel.SeccompFilter(connect_filter)
        most = config["tcp_sockets"]
        config["limiter"], config["limiter_pidfd"] = connection_limiter.start_connection_limiter(control, most)
    if config["has_namespace_pool"]:
        namespace_pool = namespace_pools.start_namespace_pool(
            control, reuse_networks=bool(zygote_filter), has_loopback=bool(connect_filter)
        )
        # The handler does nothing: Python then writes a byte to the descriptor that the zygote polls.
        signal.signal(signal.SIGCHLD, lambda *_: None)
    sys.path += config["python_path"]
    _preload(config["preload"])
    program.prepare_python()
    for name in ("root", "preload", "python_path", "groups"):
        del config[name]  # a box that freed them would copy their pages
    config["base_bytes"] = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    for name in [name for name in sys.modules if name.startswith("jobyard")]:
        kernel.keep(sys.modules.pop(name))  # a program must not be able to import them
    gc.collect()
    gc.freeze()
    huge_pages.remap_code()
    if zygote_filter:
        kernel.SeccompFilter(zygote_filter).load()
    return namespace_pool


def _move_up(control: socket.socket) -> socket.socket:
    """Reserve the low descriptors: a box uses 0 to 4, and received descriptors must not take these numbers."""
    moved = socket.socket(fileno=fcntl.fcntl(control.fileno(), fcntl.F_DUPFD_CLOEXEC, _RESERVED))
    control.close()
    nothing = fcntl.fcntl(os.open("/dev/null", os.O_RDWR), fcntl.F_DUPFD_CLOEXEC, _RESERVED)
    for descriptor in range(_RESERVED):
        os.dup2(nothing, descriptor, inheritable=False)
    os.close(nothing)
    return moved


class _ZygoteServer:
    """The main loop of the zygote."""

    def __init__(self, config: dict[str, Any], control: socket.socket, namespace_pool: socket.socket | None) -> None:
        self._config, self._control, self._namespace_pool = config, control, namespace_pool
        self._flags = _flags(config)
        self._poll = select.poll()
        self._poll.register(control.fileno(), select.POLLIN)
        self._serials: dict[int, int] = {}  # of the programs, by pid
        if namespace_pool:
            self._exits, wakeup = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
            signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
            self._poll.register(self._exits, select.POLLIN)
        if config["limiter"] is not None:
            self._poll.register(config["limiter_pidfd"], select.POLLIN)

    def serve(self) -> program.CompiledProgram:
        own = self._control.fileno()
        while True:
            has_request = self._namespace_pool is None
            for descriptor, _ in self._poll.poll() if self._namespace_pool else ():
                if descriptor == self._config.get("limiter_pidfd"):
                    os._exit(1)  # without it no box can be set up; the daemon starts another zygote
                if descriptor == own:
                    has_request = True  # after reaping: a caller waits for those exits
                else:
                    self._reap()
            if has_request and (made := self._spawn()) is not None:
                return made

    def _reap(self) -> None:
        """Reap every exited child: one that nothing waits for would keep its pid namespace from ending."""
        os.read(self._exits, 4096)
        with contextlib.suppress(ChildProcessError):
            while (ended := os.wait4(-1, os.WNOHANG))[0]:
                pid, status, usage = ended
                if (serial := self._serials.pop(pid, None)) is not None:
                    self._control.send(wire.EXITED.pack(serial, *box.exit_status(status, usage)))

    def _spawn(self) -> program.CompiledProgram | None:
        data, ancillary, _, _ = self._control.recvmsg(wire.SPAWN.size, _ANCILLARY_BYTES)
        if not data:
            os._exit(0)
        descriptors = array.array("i")
        for _, _, body in ancillary:
            descriptors.frombytes(body)
        serial, *rest = wire.SPAWN.unpack(data)
        try:
            pid, pidfds = self._clone(descriptors)
        except OSError as error:
            self._control.send(wire.SPAWNED.pack(serial, error.errno or 1))
            _close(descriptors)
            return None
        if pid == 0 and self._namespace_pool:
            return box.become_program(self._config, box.SpawnRequest(*rest), list(descriptors), pidfds[0])
        if pid == 0:
            return box.begin(self._config, box.SpawnRequest(*rest), list(descriptors))
        socket.send_fds(self._control, [wire.SPAWNED.pack(serial, 0)], pidfds)
        if self._namespace_pool:
            self._serials[pid] = serial
        _close(pidfds)
        _close(descriptors)
        return None

    def _clone(self, descriptors: array.array[int]) -> tuple[int, list[int]]:
        if self._namespace_pool is None:
            pid, pidfd = kernel.clone(self._flags)
            return pid, [pidfd]
        _, (init, *_), _, _ = socket.recv_fds(self._namespace_pool, 1, 1)
        self._namespace_pool.send(b"1")
        try:
            kernel.enter(init, kernel.NEWPID)
            into = descriptors[wire.GROUPS] if self._config["clone_into_group"] else -1
            pid, pidfd = kernel.clone(self._flags, into)
        except OSError:
            signal.pidfd_send_signal(init, signal.SIGKILL)
            os.close(init)
            raise
        return pid, [init, pidfd]


def _flags(config: dict[str, Any]) -> int:
    if not config["namespaces"]:
        return 0
    if config["has_namespace_pool"]:
        return kernel.NEWNS  # the namespace pool provides the others
    flags = kernel.NEWNS | kernel.NEWPID | box.SHARED
    return flags | kernel.NEWUSER if config["user_namespace"] else flags


def _close(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _limit() -> None:
    """Set hard limits for all boxes; each run lowers them further."""
    for which, most in _HARD_LIMITS.items():
        _, hard = resource.getrlimit(which)
        value = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(which, (value, value))


def _preload(names: list[str]) -> None:
    for name in names:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    # What the site module provides, without its disk access.
    for word in ("quit", "exit"):
        setattr(builtins, word, _sitebuiltins.Quitter(word, "Ctrl-D (i.e. EOF)"))
    builtins.help = _sitebuiltins._Helper()
