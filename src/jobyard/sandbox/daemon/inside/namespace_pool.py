"""Namespaces ahead of time, by a process of its own: their inits must ignore SIGCHLD, and the zygote must not.

A network namespace is the dearest thing that a member has, to make and to remove. It is nobody else's as long as the
member lives, and used again by a later one: with the last process of the first every socket in it is gone, which is
looked at, and its counters stand where they stood, for the filter lets nobody make a socket that could send. Without a
filter there is a new one for each.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket

from jobyard.sandbox.daemon.inside import kernel

_AHEAD = 4  # sets of namespaces kept ready
_MOST_FREE = 32  # networks; after a peak the others go


def start_namespace_pool(control: socket.socket, *, again: bool) -> socket.socket:
    """Where inits are to be had: a byte sent asks for one more, a pidfd comes with each byte received."""
    ours, theirs = socket.socketpair()
    pid, pidfd = kernel.clone()
    if pid == 0:
        ours.close()
        control.close()  # its end is how the supervisor sees that of the zygote
        with contextlib.suppress(BaseException):
            _NamespacePool(theirs, again).work()
        os._exit(0)
    os.close(pidfd)
    theirs.close()
    ours.send(b"1" * _AHEAD)
    return ours


class _NamespacePool:
    def __init__(self, link: socket.socket, again: bool) -> None:
        self._link, self._again = link, again
        self._poll = select.poll()
        self._networks: dict[int, int] = {}  # by the pidfd of the init that lives in it
        self._free: list[int] = []

    def work(self) -> None:
        while self._link.recv(1):
            for pidfd, _ in self._poll.poll(0):
                self._leave(pidfd)
            network = self._enter()
            init = kernel.new_namespaces(kernel.NEWIPC | kernel.NEWUTS)
            socket.send_fds(self._link, [b"1"], [init])
            self._networks[init] = network
            self._poll.register(init, select.POLLIN)

    def _enter(self) -> int:
        while self._free:
            kernel.enter(network := self._free.pop(), kernel.NEWNET)
            if _is_empty():
                return network
            os.close(network)  # not what was said above, so it goes
        return kernel.new_network()

    def _leave(self, init: int) -> None:
        """It has ended, so everybody else of its pid namespace had ended before."""
        self._poll.unregister(init)
        os.close(init)
        network = self._networks.pop(init)
        if self._again and len(self._free) < _MOST_FREE:
            self._free.append(network)
        else:
            os.close(network)


def _is_empty() -> bool:
    """Whether there is no socket in the network that this process is in; not, where nobody can say."""
    try:
        descriptor = os.open("/proc/self/net/sockstat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.read(descriptor, 64).startswith(b"sockets: used 0\n")
    finally:
        os.close(descriptor)
