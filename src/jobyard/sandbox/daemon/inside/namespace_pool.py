"""Namespaces created ahead, in a process of its own: their inits must ignore SIGCHLD, and the zygote must not.

A network namespace is the most expensive part of a box, to create and to remove. A box has one to itself while it
lives; a later box reuses it. All its sockets are gone with the last process of the first box, which is verified, and
its counters are unchanged, because the filter allows no socket that could send. Without it, and where programs may
use TCP, networks are not reused.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import socket
import struct

from jobyard.sandbox.daemon.inside import kernel

_READY = 4  # sets of namespaces kept ready
_MAX_FREE_NETWORKS = 32  # after a peak the others are closed


# Small buffers, because a connection can keep 32 kB of memory for each byte in them. No calls besides connect() may
# make a connection. What outlives a connection is bounded: the kernel counts it nowhere.
_TCP_SETTINGS = {
    "ipv4/tcp_rmem": "4096 4096 4096",
    "ipv4/tcp_wmem": "4096 4096 4096",
    "ipv4/tcp_fastopen": "0",
    "ipv4/tcp_max_tw_buckets": "256",
    "ipv4/tcp_max_syn_backlog": "128",
    "ipv4/tcp_no_metrics_save": "1",
    "core/somaxconn": "128",
}
_OTHER_PROTOCOLS = {"ipv6/conf/all/disable_ipv6": "1", "ipv6/conf/default/disable_ipv6": "1", "mptcp/enabled": "0"}
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
_INTERFACE = struct.Struct("16sH22x")


def start_namespace_pool(control: socket.socket, *, reuse_networks: bool, has_loopback: bool = False) -> socket.socket:
    """Start the process and return a socket to it: a byte sent requests an init, a byte received carries its pidfd."""
    ours, theirs = socket.socketpair()
    pid, pidfd = kernel.clone()
    if pid == 0:
        ours.close()
        control.close()  # the daemon detects the zygote's death by the end of this socket
        with contextlib.suppress(BaseException):
            _NamespacePool(theirs, reuse_networks and not has_loopback, has_loopback).serve()
        os._exit(0)
    os.close(pidfd)
    theirs.close()
    ours.send(b"1" * _READY)
    return ours


class _NamespacePool:
    def __init__(self, zygote: socket.socket, reuse_networks: bool, has_loopback: bool) -> None:
        self._socket, self._reuse_networks, self._has_loopback = zygote, reuse_networks, has_loopback
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
        network = kernel.new_network()
        if self._has_loopback:
            start_loopback()
        return network

    def _release_network(self, init: int) -> None:
        """Release the network of an init that has exited, and with it every process of its pid namespace."""
        self._poll.unregister(init)
        os.close(init)
        network = self._networks.pop(init)
        if self._reuse_networks and len(self._free) < _MAX_FREE_NETWORKS:
            self._free.append(network)
        else:
            os.close(network)


def start_loopback() -> None:
    """Configure TCP in the current network namespace, and start its loopback interface."""
    for name, value in _TCP_SETTINGS.items():
        _configure(name, value)
    for name, value in _OTHER_PROTOCOLS.items():
        with contextlib.suppress(FileNotFoundError):  # the kernel does not have the protocol
            _configure(name, value)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        found = fcntl.ioctl(link, _SIOCGIFFLAGS, _INTERFACE.pack(b"lo", 0))
        name, flags = _INTERFACE.unpack(found)
        fcntl.ioctl(link, _SIOCSIFFLAGS, _INTERFACE.pack(name, flags | _IFF_UP))


def _configure(name: str, value: str) -> None:
    descriptor = os.open(f"/proc/sys/net/{name}", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, value.encode())
    finally:
        os.close(descriptor)


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
