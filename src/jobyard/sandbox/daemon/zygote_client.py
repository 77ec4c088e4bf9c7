"""Client of the zygote: starts it, requests boxes from it, and notices its death."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

from jobyard.sandbox.daemon import bundle
from jobyard.sandbox.daemon.box import Box, SpawnFailed, SpawnLimits
from jobyard.sandbox.daemon.cgroups import Cgroup, CgroupManager
from jobyard.sandbox.daemon.inside import protocol

_START_TIMEOUT_S = 20.0
SPAWN_TIMEOUT_S: Final = 10.0
_EMPTY_POLL_S = 0.002  # a cgroup empties within about a millisecond of its last process
_EMPTY_POLLS = 1000  # then it is removed without reuse: waiting forever would leak the user id
_TRIM_AFTER_S = 0.5  # of idleness: until then free cgroups are reused, as removing one takes the kernel milliseconds


class ZygoteClient:
    def __init__(self, groups: CgroupManager | None, uids: Iterable[int]) -> None:
        self._groups = groups
        self._uids = deque(uids)
        self._serial = 0
        self._boxes: dict[int, Box] = {}
        self._disposals: set[asyncio.Task[None]] = set()
        self._process: subprocess.Popen[bytes] | None = None
        self._parent_pipe: socket.socket | None = None
        self._control: socket.socket | None = None
        self._started: asyncio.Future[None] | None = None
        self._lost = asyncio.Event()
        self._trimmer: asyncio.TimerHandle | None = None
        self._is_program_parent = False  # the zygote is the parent of the programs and reaps them
        self.is_alive = False
        self.on_lost: Callable[[], None] = lambda: None

    async def start(self, interpreter: str, config: dict[str, Any]) -> None:
        """Start a zygote and wait until it is ready. Raises SpawnFailed."""
        loop = asyncio.get_running_loop()
        self._started = loop.create_future()
        self._is_program_parent = bool(config["has_namespace_pool"])
        self._parent_pipe, their_parent_pipe = socket.socketpair()
        self._control, their_control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.setblocking(False)
        keep = (their_parent_pipe.fileno(), their_control.fileno())
        groups = self._groups.folders if self._groups else []
        script = os.memfd_create("script")
        try:
            _fill(script, bundle.script({**config, "groups": groups, "parent_pipe": keep[0], "control": keep[1]}))
            self._process = await asyncio.to_thread(_spawn, interpreter, script, keep)
        finally:
            os.close(script)
            their_parent_pipe.close()
            their_control.close()
        loop.add_reader(self._control.fileno(), self._on_message)
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                await self._started
        except TimeoutError:
            await self.stop()
            raise SpawnFailed(f"the zygote was not ready within {_START_TIMEOUT_S:g} s") from None
        except SpawnFailed as error:
            message = await self._read_error()
            raise SpawnFailed(f"the zygote did not start: {message or error}") from None
        self.is_alive = True

    async def _read_error(self) -> str:
        assert self._process is not None and self._process.stderr is not None and self._parent_pipe is not None
        self._parent_pipe.close()  # the reaper ends with it, and the text with the reaper
        text = (await asyncio.to_thread(self._process.stderr.read)).decode(errors="replace").strip()
        await self.stop()
        return text.rpartition("\n")[2]

    def _on_message(self) -> None:
        assert self._control is not None
        try:
            data, descriptors, _, _ = socket.recv_fds(self._control, 4096, 2)
        except BlockingIOError:
            return
        except OSError:
            data, descriptors = b"", []
        if not data:
            self._on_hangup()
            return
        serial, number = protocol.SPAWNED.unpack_from(data)
        if serial and len(data) == protocol.EXITED.size:
            self._on_box_exit(data)
            return
        if serial == 0:
            assert self._started is not None
            if number:
                self._started.set_exception(SpawnFailed(data[protocol.SPAWNED.size :].decode(errors="replace")))
            else:
                self._started.set_result(None)
            return
        box = self._boxes.get(serial)
        if box is None:  # disposed of before it was spawned
            for descriptor in descriptors:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                os.close(descriptor)
        else:
            box.on_spawned(number, descriptors)

    def _on_box_exit(self, data: bytes) -> None:
        (serial,) = protocol.SERIAL.unpack_from(data)
        if (box := self._boxes.get(serial)) is not None:
            box.on_exit(data[protocol.SERIAL.size :])

    def _on_hangup(self) -> None:
        assert self._control is not None
        asyncio.get_running_loop().remove_reader(self._control.fileno())
        was_alive, self.is_alive = self.is_alive, False
        self._lost.set()
        if self._started is not None and not self._started.done():
            self._started.set_exception(SpawnFailed("it exited without a message"))
        for box in list(self._boxes.values()):
            box.on_zygote_lost()
        if was_alive:
            self.on_lost()

    async def is_lost_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self._lost.wait()
        except TimeoutError:
            return False

    def spawn(self, kind: int, limits: SpawnLimits, *, is_pooled: bool, rehearse: bool = False) -> Box:
        """Request a box without waiting. The caller waits until it is ready, and disposes of it. Raises SpawnFailed."""
        if self._control is None or not self.is_alive:
            raise SpawnFailed("the zygote is not running")
        if not self._uids:
            raise SpawnFailed("all user ids are in use by boxes")
        self._serial += 1
        uid = self._uids.popleft()
        box: Box | None = None
        group: Cgroup | None = None
        try:
            group = self._groups.make(self._serial) if self._groups else None
            box = Box(
                self._serial, kind, uid, limits, group, is_pooled=is_pooled, zygote_is_parent=self._is_program_parent
            )
            self._boxes[self._serial] = box
            box.send_spawn_request(self._control, rehearse=rehearse)
        except OSError as error:
            if box is None:
                self._uids.append(uid)
                if group is not None and self._groups is not None and not self._groups.recycle(group):
                    group.remove()
            else:
                box.on_zygote_lost()  # the zygote never got the request
                self.dispose(box)
            raise SpawnFailed(str(error)) from error
        return box

    async def spawn_idle(self, kind: int, limits: SpawnLimits, *, rehearse: bool = True) -> Box:
        """Spawn a box for the pool and wait until it is ready; a rehearsed box runs faster. Raises SpawnFailed."""
        box = self.spawn(kind, limits, is_pooled=True, rehearse=rehearse)
        try:
            async with asyncio.timeout(SPAWN_TIMEOUT_S):
                await box.ready()
            if box.group is not None:
                box.group.reset_peak()
        except BaseException as error:
            self.dispose(box)
            if isinstance(error, OSError | TimeoutError):
                raise SpawnFailed(str(error) or "a box was not ready in time") from error
            raise
        return box

    def dispose(self, box: Box) -> None:
        """In the background: terminate the box, close its descriptors, release its cgroup and user id."""
        task = asyncio.get_running_loop().create_task(self._dispose(box))
        self._disposals.add(task)
        task.add_done_callback(self._disposals.discard)

    async def _dispose(self, box: Box) -> None:
        await box.terminate()
        self._boxes.pop(box.serial, None)
        box.close()
        if box.group is not None and self._groups is not None:
            try:
                await self._recycle(box.group, self._groups)
            except OSError:
                box.group.remove()  # all cgroups were removed meanwhile; its files are still open
        self._uids.append(box.uid)

    async def _recycle(self, group: Cgroup, groups: CgroupManager) -> None:
        for _ in range(_EMPTY_POLLS):
            if group.is_empty():
                break
            await asyncio.sleep(_EMPTY_POLL_S)
        if groups.recycle(group):
            self._trim_later()
        else:
            await asyncio.to_thread(group.remove)

    def _trim_later(self) -> None:
        if self._trimmer is not None:
            self._trimmer.cancel()
        self._trimmer = asyncio.get_running_loop().call_later(_TRIM_AFTER_S, self._trim)

    def _trim(self) -> None:
        self._trimmer = None
        if self._groups is not None:
            asyncio.get_running_loop().run_in_executor(None, self._groups.trim)

    async def stop(self) -> None:
        """Stop the zygote, through the reaper, and every box with it."""
        self.is_alive = False
        if self._trimmer is not None:
            self._trimmer.cancel()
        if self._control is not None:
            asyncio.get_running_loop().remove_reader(self._control.fileno())
            self._control.close()
            self._control = None
        if self._parent_pipe is not None:
            self._parent_pipe.close()
        if self._process is not None:
            await asyncio.to_thread(self._process.wait)
            if self._process.stderr is not None:
                self._process.stderr.close()
        for box in list(self._boxes.values()):
            box.on_zygote_lost()  # also those with a spawn request in flight
        if self._disposals:
            await asyncio.wait(self._disposals, timeout=5)


def _fill(descriptor: int, text: bytes) -> None:
    with open(descriptor, "wb", closefd=False) as file:
        file.write(text)
    os.lseek(descriptor, 0, os.SEEK_SET)


def _spawn(interpreter: str, script: int, keep: tuple[int, int]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [interpreter, "-I", "-S", "-B", "-"],
        stdin=script,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        pass_fds=keep,
        env=protocol.ENVIRONMENT,
        cwd="/",
        start_new_session=True,  # a signal to the daemon's process group must not reach the reaper
    )
