"""A box as the daemon holds it: its pipes, its cgroup, and pidfds of its init and program.

A box is one isolated process tree, cloned from the zygote and used for a single run.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import socket
import time
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from jobyard.sandbox.daemon.cgroups import Cgroup
from jobyard.sandbox.daemon.inside import protocol

_CHUNK = 256 << 10
# A program that writes single bytes must not cost the daemon and its client a message for each: after some small reads,
# output is read at intervals.
_SMALL_READ, _MAX_SMALL_READS = 4096, 32
_READ_INTERVAL_S = 0.005
_STATUS_BYTES = 65536
_GONE = "the box died before it was ready"
_CPU_CLOCK_OF_PROCESS = 2  # the kernel's encoding of another process's clock, as clock_getcpuclockid() returns it


class SpawnLimits(NamedTuple):
    """Limits that must be known when a box is spawned; the others arrive with the program."""

    disk_bytes: int = 0
    disk_files: int = 0
    files_open: int = 0  # for drivers, which cannot lower it later; 0 for all others


class SpawnFailed(Exception):
    """A box could not be spawned. Always a platform fault, never the program's."""


def pid_of(pidfd: int) -> int:
    """The process id, which the kernel reuses once the process has been reaped. Raises ProcessLookupError then."""
    with open(f"/proc/self/fdinfo/{pidfd}") as file:  # noqa: PTH123
        pid = next(int(line.split()[1]) for line in file if line.startswith("Pid:"))
    if pid <= 0:  # 0 would stand for the daemon itself
        raise ProcessLookupError(errno.ESRCH, "the process has been reaped")
    return pid


class BoxListener(Protocol):
    def on_output(self, which: int, data: bytes) -> None:
        """Bytes from descriptor 1 or 2; empty at end of file."""

    def on_status(self, what: bytes, body: bytes) -> None: ...

    def on_lost(self) -> None:
        """The init of the box has exited."""


class Box:
    def __init__(
        self,
        serial: int,
        kind: int,
        uid: int,
        limits: SpawnLimits,
        group: Cgroup | None,
        *,
        is_pooled: bool,
        zygote_is_parent: bool,
    ) -> None:
        self.serial, self.kind, self.uid, self.limits, self.group = serial, kind, uid, limits, group
        self.is_pooled = is_pooled
        self._zygote_is_parent = zygote_is_parent  # and reports the exit; otherwise the init does
        self.listener: BoxListener | None = None
        self.pidfd = self.program_pidfd = -1
        self.is_lost = False
        self._is_killed = self._is_reaped = False
        self.startup_cpu_us = 0  # CPU time that the box itself took to become ready
        self.ready_at = 0  # monotonic clock
        self._loop = asyncio.get_running_loop()
        self._spawned: asyncio.Future[None] = self._loop.create_future()
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._buffer = bytearray()
        self._small_reads = 0
        self._paused_reads: dict[int, asyncio.TimerHandle] = {}
        pairs = _pipes(with_socket=not zygote_is_parent)
        (remote_code, self.code), (remote_stdin, self.stdin) = pairs[:2]
        (self.stdout, remote_stdout), (self.stderr, remote_stderr), (self.status, remote_status) = pairs[2:]
        self._remote_ends = [remote_code, remote_stdin, remote_stdout, remote_stderr, remote_status]
        for descriptor in (self.code, self.stdin, self.stdout, self.stderr, self.status):
            os.set_blocking(descriptor, False)

    def send_spawn_request(self, control: socket.socket, *, rehearse: bool) -> None:
        """Send the spawn request to the zygote and close the local copies of the remote ends."""
        request = protocol.SPAWN.pack(self.serial, self.kind, self.uid, *self.limits, rehearse)
        join_descriptors = self.group.join_descriptors() if self.group else []
        try:
            socket.send_fds(control, [request], [*self._remote_ends, *join_descriptors])
        finally:
            for descriptor in self._remote_ends:
                os.close(descriptor)
        self._loop.add_reader(self.status, self._read_status)
        self._loop.add_reader(self.stdout, self._read_output, 1, self.stdout)
        self._loop.add_reader(self.stderr, self._read_output, 2, self.stderr)

    def on_spawned(self, number: int, pidfds: Sequence[int] = ()) -> None:
        """Take the pidfd of the init, and that of the program if the zygote is its parent."""
        if pidfds:
            self.pidfd, *rest = pidfds
            if rest:
                self.program_pidfd = rest[0]
        if not self._spawned.done():
            if number:
                _fail(self._spawned, f"clone: {os.strerror(number)}")
            else:
                self._spawned.set_result(None)

    async def ready(self) -> None:
        """Wait until the box can take its code. Raises SpawnFailed."""
        for each in (self._spawned, self._ready):
            if not each.done():
                await asyncio.wait([each])  # asyncio.wait: a cancelled caller must not cancel the future
            each.result()

    def _read_status(self) -> None:
        try:
            data = self._receive()
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._on_hangup()
            return
        self._buffer += data
        size = protocol.STATUS_HEAD.size
        while len(self._buffer) >= size:
            what, length = protocol.STATUS_HEAD.unpack_from(self._buffer)
            if len(self._buffer) < size + length:
                return
            body = bytes(self._buffer[size : size + length])
            del self._buffer[: size + length]
            self._on_status(what, body)

    def _receive(self) -> bytes:
        if self._zygote_is_parent:
            return os.read(self.status, _STATUS_BYTES)
        with socket.socket(fileno=os.dup(self.status)) as link:
            data, descriptors, _, _ = socket.recv_fds(link, _STATUS_BYTES, 1)
        if descriptors:
            self.program_pidfd = descriptors[0]
        return data

    def _on_status(self, what: bytes, body: bytes) -> None:
        if self._ready.done():
            if self.listener is not None:
                self.listener.on_status(what, body)
        elif what == protocol.READY:
            if body:
                self.startup_cpu_us, self.ready_at = protocol.READY_BODY.unpack(body)
            else:  # a driver does not measure itself
                self.startup_cpu_us = self.group.cpu_ns() // 1000 if self.group is not None else 0
                self.ready_at = time.monotonic_ns()
            self._ready.set_result(None)
            if self._zygote_is_parent:
                self._loop.remove_reader(self.status)  # the other end has no writer any more
        elif what == protocol.FAILED:
            _fail(self._ready, body.decode(errors="replace"))
        elif what == protocol.EXIT:
            _fail(self._ready, f"the box exited before it was ready: {protocol.EXIT_BODY.unpack(body)[:2]}")

    def on_exit(self, body: bytes) -> None:
        """Handle the zygote's report that it has reaped the program."""
        self._is_reaped = True
        if not self._ready.done():
            self._read_status()
        self._on_status(protocol.EXIT, body)

    def on_zygote_lost(self) -> None:
        """Handle the loss of the zygote, which takes every box with it."""
        if not self._spawned.done():
            _fail(self._spawned, _GONE)
        self._on_hangup()

    def _on_hangup(self) -> None:
        """Handle the end of the status line. The zygote's response to the spawn request may still be in flight."""
        if self.is_lost:
            return
        self.is_lost = True
        self._loop.remove_reader(self.status)
        if not self._ready.done():
            _fail(self._ready, _GONE)
        if self.listener is not None:
            self.listener.on_lost()

    def _read_output(self, which: int, descriptor: int) -> None:
        try:
            data = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return
        if not data:
            self._loop.remove_reader(descriptor)
        elif len(data) < _SMALL_READ:
            self._small_reads += 1
            if self._small_reads > _MAX_SMALL_READS:
                self._loop.remove_reader(descriptor)
                timer = self._loop.call_later(_READ_INTERVAL_S, self._resume_output, which, descriptor)
                self._paused_reads[descriptor] = timer
        if self.listener is not None:
            self.listener.on_output(which, data)

    def _resume_output(self, which: int, descriptor: int) -> None:
        del self._paused_reads[descriptor]
        self._loop.add_reader(descriptor, self._read_output, which, descriptor)

    def cpu_ns(self) -> int:
        """CPU time used so far: of all processes in the cgroup, or of the only process where there is no cgroup."""
        if self.group is not None:
            return self.group.cpu_ns()
        clock = (~pid_of(self.program_pidfd) << 3) | _CPU_CLOCK_OF_PROCESS
        used = time.clock_gettime_ns(clock) - self.startup_cpu_us * 1000
        pid_of(self.program_pidfd)  # if it has been reaped, the clock may be another process's
        return used

    def is_empty(self) -> bool:
        """Whether no process of the program is left."""
        return self.group is None or self.group.is_empty()

    def drain(self) -> None:
        """Read what has been written so far, without waiting for descriptors that a child of the program keeps open."""
        self._stop_paused_reads()
        for which, descriptor in ((1, self.stdout), (2, self.stderr)):
            with contextlib.suppress(BlockingIOError):
                while data := os.read(descriptor, _CHUNK):
                    if self.listener is not None:
                        self.listener.on_output(which, data)

    def kill(self) -> None:
        if self._is_killed:
            return
        left = self._live_pidfds()
        for descriptor in left:
            if descriptor >= 0:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        self._is_killed = min(left) >= 0  # a process whose pidfd has not arrived yet is still to be killed

    def _live_pidfds(self) -> tuple[int, ...]:
        return (self.pidfd,) if self._is_reaped else (self.program_pidfd, self.pidfd)

    def kill_program(self) -> bool:
        """Kill the program. Return True if its init is left to report the resource usage."""
        if self._zygote_is_parent or self.program_pidfd < 0:
            self.kill()
            return False
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.program_pidfd, signal.SIGKILL)
        return True

    def send_signal(self, number: int) -> None:
        """Send a signal to the process of the program, unless it has ended."""
        if self.program_pidfd >= 0 and not self._is_reaped and not self._is_killed:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.program_pidfd, number)

    async def terminate(self) -> None:
        """Kill the box and wait for its end. The end of the init takes everything in its namespace along."""
        if not self._spawned.done():
            await asyncio.wait([self._spawned])  # until the zygote responds or is lost there is no pidfd to kill
        self.kill()
        for descriptor in self._live_pidfds():
            if descriptor >= 0:
                await self._wait_for_exit(descriptor)

    async def _wait_for_exit(self, descriptor: int) -> None:
        future: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(descriptor, self._on_exit_seen, descriptor, future)
        try:
            await future
        finally:
            self._loop.remove_reader(descriptor)

    def _on_exit_seen(self, descriptor: int, future: asyncio.Future[None]) -> None:
        self._loop.remove_reader(descriptor)
        if not future.done():
            future.set_result(None)

    def _stop_paused_reads(self) -> None:
        for timer in self._paused_reads.values():
            timer.cancel()
        self._paused_reads.clear()

    def close(self) -> None:
        self.listener = None
        self._stop_paused_reads()
        for descriptor in (self.stdout, self.stderr, self.status):
            if descriptor >= 0:
                self._loop.remove_reader(descriptor)
        for descriptor in (self.code, self.stdin):
            if descriptor >= 0:
                self._loop.remove_writer(descriptor)
        for name in ("code", "stdin", "stdout", "stderr", "status", "pidfd", "program_pidfd"):
            if (descriptor := getattr(self, name)) >= 0:
                os.close(descriptor)
                setattr(self, name, -1)


def _pipes(*, with_socket: bool) -> list[tuple[int, int]]:
    """Open four pipes and the status line; all of them or none."""
    made: list[tuple[int, int]] = []
    try:
        for _ in range(4):
            made.append(os.pipe2(os.O_CLOEXEC))  # noqa: PERF401 on an error the earlier ones must be closed
        made.append(_socket_pair() if with_socket else os.pipe2(os.O_CLOEXEC))
        for end, _ in made[1:4]:
            os.fchmod(end, 0o666)  # the program, another user, may open /dev/stdin, /dev/stdout and /dev/stderr
    except OSError:
        for descriptor in (end for pair in made for end in pair):
            os.close(descriptor)
        raise
    return made


def _socket_pair() -> tuple[int, int]:
    """A status line over which a box can send its own pidfd."""
    ours, theirs = socket.socketpair()
    return ours.detach(), theirs.detach()


def _fail(future: asyncio.Future[None], why: str) -> None:
    future.set_exception(SpawnFailed(why))
    future.exception()  # mark it as retrieved: there may be no waiter
