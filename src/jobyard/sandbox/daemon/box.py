"""One member as the supervisor holds it: the ends of its pipes, its control group, and a grip on its init."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import time
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from jobyard.sandbox.daemon.cgroups import Cgroup
from jobyard.sandbox.daemon.inside import protocol

_CHUNK = 256 << 10
_STATUS_BYTES = 65536
_GONE = "it was gone before it was ready"
_CPU_CLOCK_OF_PROCESS = 2  # how the kernel names the clock of another process, as clock_getcpuclockid() would


class SpawnLimits(NamedTuple):
    """What a member must know when it is made; the other limits come with the program."""

    disk_bytes: int = 0
    disk_files: int = 0
    files_open: int = 0  # of those who cannot lower it themselves; 0: they can


class SpawnFailed(Exception):
    """A member could not be made: the platform's fault, never the program's."""


def pid_of(pidfd: int) -> int:
    """Its number here; it is not given to another process before the pidfd tells that it ended."""
    with open(f"/proc/self/fdinfo/{pidfd}") as file:  # noqa: PTH123
        return next(int(line.split()[1]) for line in file if line.startswith("Pid:"))


class BoxListener(Protocol):
    """Whoever the member belongs to while it runs."""

    def on_output(self, which: int, data: bytes) -> None:
        """Bytes of 1 or 2; none at the end."""
        ...

    def on_status(self, what: bytes, body: bytes) -> None: ...

    def on_lost(self) -> None:
        """Its init is gone."""
        ...


class Box:
    def __init__(
        self,
        serial: int,
        kind: int,
        uid: int,
        shape: SpawnLimits,
        group: Cgroup | None,
        *,
        is_spare: bool,
        has_zygote_for_parent: bool,
    ) -> None:
        self.serial, self.kind, self.uid, self.shape, self.group = serial, kind, uid, shape, group
        self.is_spare = is_spare
        self._has_zygote_for_parent = has_zygote_for_parent  # which tells how it ended, then
        self.listener: BoxListener | None = None
        self.pidfd = self.program_pidfd = -1
        self.is_lost = False
        self._is_killed = self._is_buried = False
        self.used_before = 0  # microseconds of processor, until it was ready
        self.ready_at = 0  # on the monotonic clock, in ns
        self._loop = asyncio.get_running_loop()
        self._made: asyncio.Future[None] = self._loop.create_future()
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._buffer = bytearray()
        pairs = _pairs(with_socket=not has_zygote_for_parent)
        (theirs_code, self.code), (theirs_stdin, self.stdin) = pairs[:2]
        (self.stdout, theirs_stdout), (self.stderr, theirs_stderr), (self.status, theirs_status) = pairs[2:]
        self._theirs = [theirs_code, theirs_stdin, theirs_stdout, theirs_stderr, theirs_status]
        for descriptor in (self.code, self.stdin, self.stdout, self.stderr, self.status):
            os.set_blocking(descriptor, False)

    def hand_over(self, control: socket.socket, *, rehearse: bool) -> None:
        """Order it from the zygote; our copies of its ends are closed."""
        order = protocol.SPAWN.pack(self.serial, self.kind, self.uid, *self.shape, rehearse)
        joins = self.group.joins() if self.group else []
        try:
            socket.send_fds(control, [order], [*self._theirs, *joins])
        finally:
            for descriptor in self._theirs:
                os.close(descriptor)
        self._loop.add_reader(self.status, self._read_status)
        self._loop.add_reader(self.stdout, self._read_output, 1, self.stdout)
        self._loop.add_reader(self.stderr, self._read_output, 2, self.stderr)

    def on_made(self, number: int, pidfds: Sequence[int] = ()) -> None:
        """Of its init; and of the program's process, when the zygote is its parent."""
        if pidfds:
            self.pidfd, *rest = pidfds
            if rest:
                self.program_pidfd = rest[0]
        if not self._made.done():
            if number:
                _fail(self._made, f"clone: {os.strerror(number)}")
            else:
                self._made.set_result(None)

    async def ready(self) -> None:
        """It waits for its code, or has it already. Raises SpawnFailed."""
        for each in (self._made, self._ready):
            if not each.done():
                await asyncio.wait([each])  # who is cancelled while he waits does not cancel what he waits for
            each.result()

    # What it says

    def _read_status(self) -> None:
        try:
            data = self._receive()
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._end_early()
            return
        self._buffer += data
        size = protocol.STATUS_HEAD.size
        while len(self._buffer) >= size:
            what, length = protocol.STATUS_HEAD.unpack_from(self._buffer)
            if len(self._buffer) < size + length:
                return
            body = bytes(self._buffer[size : size + length])
            del self._buffer[: size + length]
            self._hear(what, body)

    def _receive(self) -> bytes:
        if self._has_zygote_for_parent:
            return os.read(self.status, _STATUS_BYTES)
        with socket.socket(fileno=os.dup(self.status)) as link:
            data, descriptors, _, _ = socket.recv_fds(link, _STATUS_BYTES, 1)
        if descriptors:
            self.program_pidfd = descriptors[0]
        return data

    def _hear(self, what: bytes, body: bytes) -> None:
        if self._ready.done():
            if self.listener is not None:
                self.listener.on_status(what, body)
        elif what == protocol.READY:
            if body:
                self.used_before, self.ready_at = protocol.READY_BODY.unpack(body)
            else:  # a driver, which does not know
                self.used_before = self.group.cpu_ns() // 1000 if self.group is not None else 0
                self.ready_at = time.monotonic_ns()
            self._ready.set_result(None)
            if self._has_zygote_for_parent:
                self._loop.remove_reader(self.status)  # nobody is left who could say more there
        elif what == protocol.FAILED:
            _fail(self._ready, body.decode(errors="replace"))
        elif what == protocol.EXIT:
            _fail(self._ready, f"it ended before it was ready: {protocol.EXIT_BODY.unpack(body)[:2]}")

    def on_ended(self, body: bytes) -> None:
        """The zygote has buried the program's process."""
        self._is_buried = True
        if not self._ready.done():
            self._read_status()
        self._hear(protocol.EXIT, body)

    def lose(self) -> None:
        """The zygote is gone, and with it everybody."""
        if not self._made.done():
            _fail(self._made, _GONE)
        self._end_early()

    def _end_early(self) -> None:
        """Nobody is left at the other end; what the zygote says of its making may still be on its way."""
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
        if self.listener is not None:
            self.listener.on_output(which, data)

    def cpu_ns(self) -> int:
        """What the program has used so far: all its processes in a group, the one where there is none."""
        if self.group is not None:
            return self.group.cpu_ns()
        clock = (~pid_of(self.program_pidfd) << 3) | _CPU_CLOCK_OF_PROCESS
        return time.clock_gettime_ns(clock) - self.used_before * 1000

    def is_alone(self) -> bool:
        """No process of the program is left: none that its init, or the kernel for it, would still have to end."""
        return self.group is None or self.group.is_empty()

    def drain(self) -> None:
        """What has been written so far is read; nobody waits for ends that a child of the program keeps open."""
        for which, descriptor in ((1, self.stdout), (2, self.stderr)):
            with contextlib.suppress(BlockingIOError):
                while data := os.read(descriptor, _CHUNK):
                    if self.listener is not None:
                        self.listener.on_output(which, data)

    # Its end

    def kill(self) -> None:
        if self._is_killed:
            return
        left = self._left()
        for descriptor in left:
            if descriptor >= 0:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        self._is_killed = min(left) >= 0  # one that is still to come has not been

    def _left(self) -> tuple[int, ...]:
        """The pidfds of those who may be alive."""
        return (self.pidfd,) if self._is_buried else (self.program_pidfd, self.pidfd)

    def end_program(self) -> bool:
        """Kill it; True when its init is left, who will say how much it had used."""
        if self._has_zygote_for_parent or self.program_pidfd < 0:
            self.kill()
            return False
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.program_pidfd, signal.SIGKILL)
        return True

    async def gone(self) -> None:
        """Killed, and buried: with its init everything of its namespace."""
        if not self._made.done():
            await asyncio.wait([self._made])  # the zygote answers, or is lost; until then there is nothing to hold
        self.kill()
        for descriptor in self._left():
            if descriptor >= 0:
                await self._ended(descriptor)

    async def _ended(self, descriptor: int) -> None:
        future: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(descriptor, self._saw_end, descriptor, future)
        try:
            await future
        finally:
            self._loop.remove_reader(descriptor)

    def _saw_end(self, descriptor: int, future: asyncio.Future[None]) -> None:
        self._loop.remove_reader(descriptor)
        if not future.done():
            future.set_result(None)

    def close(self) -> None:
        self.listener = None
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


def _pairs(*, with_socket: bool) -> list[tuple[int, int]]:
    """Four pipes and the status line; all of them or none."""
    made: list[tuple[int, int]] = []
    try:
        for _ in range(4):
            made.append(os.pipe2(os.O_CLOEXEC))  # noqa: PERF401 those before one that fails are closed
        made.append(_socket_pair() if with_socket else os.pipe2(os.O_CLOEXEC))
    except OSError:
        for descriptor in (end for pair in made for end in pair):
            os.close(descriptor)
        raise
    return made


def _socket_pair() -> tuple[int, int]:
    """For those who send their own pidfd."""
    ours, theirs = socket.socketpair()
    return ours.detach(), theirs.detach()


def _fail(future: asyncio.Future[None], why: str) -> None:
    future.set_exception(SpawnFailed(why))
    future.exception()  # whether anybody waits or not
