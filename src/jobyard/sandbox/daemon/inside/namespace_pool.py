"""Namespaces created ahead, in a process of its own: their inits must ignore SIGCHLD, and the zygote must not.

A network namespace is the most expensive part of a box, to create and to remove. A box has one to itself while it
lives; a later box reuses it. All its sockets are gone with the last process of the first box, which is verified, and
its counters are unchanged, because the filter allows no socket that could send. Without it, networks are not reused.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket

from jobyard.sandbox.daemon.inside import kernel

_READY = 4  # sets of namespaces kept ready
_MAX_FREE_NETWORKS = 32  # after a peak the others are closed


def start_namespace_pool(control: socket.socket, *, reuse_networks: bool) -> socket.socket:
    """Start the process and return a socket to it: a byte sent requests an init, a byte received carries its pidfd."""
    ours, theirs = socket.socketpair()
    pid, pidfd = kernel.clone()
    if pid == 0:
        ours.close()
        control.close()  # the daemon detects the zygote's death by the end of this socket
        with contextlib.suppress(BaseException):
            _NamespacePool(theirs, reuse_networks).serve()
        os._exit(0)
    os.close(pidfd)
    theirs.close()
    ours.send(b"1" * _READY)
    return ours


class _NamespacePool:
    def __init__(self, zygote: socket.socket, reuse_networks: bool) -> None:
        self._socket, self._reuse_networks = zygote, reuse_networks
        self._poll = select.poll()
        self._networks: dict[int, int] = {}  # by the pidfd of the init in it
        self._free: list[int] = []

    def serve(self) -> None:
        while self._socket.recv(1):
            for pidfd, _ in self._poll.poll(0):
                self._release_network(pidfd)
            network = self._enter_network()
            init = kernel.new_namespaces(kernel.NEWIPC | kernel.NEWUTS)
            socket.send_fds(self._socket, [b"1"], [init])
            self._networks[init] = network
            self._poll.register(init, select.POLLIN)

    def _enter_network(self) -> int:
        while self._free:
            kernel.enter(network := self._free.pop(), kernel.NEWNET)
            if _has_no_sockets():
                return network
            os.close(network)  # unexpected; never reuse it
        return kernel.new_network()

    def _release_network(self, init: int) -> None:
        """Release the network of an init that has exited, and with it every process of its pid namespace."""
        self._poll.unregister(init)
        os.close(init)
        network = self._networks.pop(init)
        if self._reuse_networks and len(self._free) < _MAX_FREE_NETWORKS:
            self._free.append(network)
        else:
            os.close(network)


def _has_no_sockets() -> bool:
    """Whether the current network namespace has no sockets; False if that cannot be determined."""
    try:
        descriptor = os.open("/proc/self/net/sockstat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.read(descriptor, 64).startswith(b"sockets: used 0\n")
    finally:
        os.close(descriptor)
