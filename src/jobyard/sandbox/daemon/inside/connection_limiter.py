"""Limits the TCP connections of programs, in a process of its own: no counter of the kernel covers their buffers.

The kernel suspends each connect() of a program (SECCOMP_RET_USER_NOTIF) and asks here. It may go on while its network
namespace has at most as many sockets as allowed. That number covers sockets without a descriptor, too: those that wait
to be accepted, and those that were closed with data in their queues. A connection cannot come into being without a
connect(), so there are never more connections than allowed sockets. The arguments do not matter, so a program gains
nothing by changing them meanwhile.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import socket
import struct
import time
from typing import Final

from jobyard.sandbox.daemon.inside import kernel

_RECEIVE, _RESPOND = 0xC0502100, 0xC0182101  # SECCOMP_IOCTL_NOTIF_RECV and SECCOMP_IOCTL_NOTIF_SEND
_CALL = struct.Struct("<QII64x")  # id, thread, flags, arguments
_RESPONSE = struct.Struct("<QqiI")  # id, value, error, flags
_GO_ON: Final = 1  # SECCOMP_USER_NOTIF_FLAG_CONTINUE
_ENOBUFS: Final = 105  # not EAGAIN, which event loops take for a connection in progress
# A program that only calls connect() must not keep this process busy: after some calls, its next ones wait.
_BURST = 100
_INTERVAL_S = 0.001


def start_connection_limiter(control: socket.socket, most: int) -> tuple[socket.socket, int]:
    """Start the process; return the socket that takes the listeners of boxes, and its pidfd."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid, pidfd = kernel.clone()
    if pid == 0:
        ours.close()
        control.close()
        with contextlib.suppress(BaseException):
            kernel.die_with_parent()
            os.setpriority(os.PRIO_PROCESS, 0, 0)  # not before programs, as the zygote
            ConnectionLimiter(theirs, most).serve()
        os._exit(0)
    theirs.close()
    return ours, pidfd


def register(limiter: socket.socket, connect_filter: kernel.SeccompFilter) -> None:
    """Suspend this process's calls of connect() from now on, and those of its children."""
    statistics = os.open("/proc/self/net/sockstat", os.O_RDONLY | os.O_CLOEXEC)
    listener = connect_filter.load_with_listener()
    try:
        socket.send_fds(limiter, [b"1"], [listener, statistics])
    finally:
        os.close(listener)
        os.close(statistics)


class _Program:
    def __init__(self, listener: int, statistics: int) -> None:
        self.listener = listener
        self._statistics = statistics
        # Threads that were allowed a connect(), which may not have begun yet. Each counts like a socket, because it
        # may use one that is created later.
        self._allowed: set[int] = set()
        self._next_at = 0.0

    def paused_until(self, now: float) -> float:
        """Count a call; return when the next one may be answered."""
        self._next_at = max(self._next_at, now - _BURST * _INTERVAL_S) + _INTERVAL_S
        return self._next_at

    def answer(self, most: int) -> None:
        call = bytearray(_CALL.size)
        fcntl.ioctl(self.listener, _RECEIVE, call)
        number, thread, _ = _CALL.unpack(call)
        self._allowed.discard(thread)
        is_allowed = self._has_room(most)
        if is_allowed:
            self._allowed.add(thread)
        error, flags = (0, _GO_ON) if is_allowed else (-_ENOBUFS, 0)
        fcntl.ioctl(self.listener, _RESPOND, _RESPONSE.pack(number, 0, error, flags))

    def _has_room(self, most: int) -> bool:
        used = self._sockets()
        if used + len(self._allowed) > most:
            self._allowed = {thread for thread in self._allowed if os.path.exists(f"/proc/{thread}")}
        return used + len(self._allowed) <= most

    def _sockets(self) -> int:
        # The kernel adds up one counter per processor. A socket that is created and closed on different ones meanwhile
        # may be missing, so this reads twice.
        return max(self._count(), self._count())

    def _count(self) -> int:
        first, _, _ = os.pread(self._statistics, 256, 0).partition(b"\n")
        return int(first.rpartition(b" ")[2])  # sockets: used N

    def close(self) -> None:
        os.close(self.listener)
        os.close(self._statistics)


class ConnectionLimiter:
    def __init__(self, link: socket.socket, most: int) -> None:
        self._link, self._most = link, most
        self._programs: dict[int, _Program] = {}
        self._paused: dict[int, float] = {}
        self._poll = select.poll()
        self._poll.register(link, select.POLLIN)

    def serve(self) -> None:
        while True:
            for descriptor, events in self._poll.poll(self._resume()):
                if descriptor == self._link.fileno():
                    self._add()
                elif events & select.POLLIN:
                    self._answer(self._programs[descriptor])
                else:
                    self._remove(descriptor)  # the last process of the program has ended

    def _add(self) -> None:
        _, (listener, statistics), _, _ = socket.recv_fds(self._link, 1, 2)
        self._programs[listener] = _Program(listener, statistics)
        self._poll.register(listener, select.POLLIN)

    def _answer(self, program: _Program) -> None:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has been killed meanwhile
            program.answer(self._most)
        now = time.monotonic()
        if (until := program.paused_until(now)) > now:
            self._poll.modify(program.listener, 0)  # its end is still reported
            self._paused[program.listener] = until

    def _resume(self) -> int | None:
        """Resume what is due; return the time until the next one, in ms."""
        now = time.monotonic()
        for listener in [listener for listener, until in self._paused.items() if until <= now]:
            del self._paused[listener]
            self._poll.modify(listener, select.POLLIN)
        return max(1, round((min(self._paused.values()) - now) * 1000)) if self._paused else None

    def _remove(self, listener: int) -> None:
        self._poll.unregister(listener)
        self._paused.pop(listener, None)
        self._programs.pop(listener).close()
