"""The zygote from the supervisor's side: started, asked for members, missed when it dies."""

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
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": protocol.PROGRAM_FOLDER, "LANG": "C.UTF-8"}
_REMOVE_AGAIN_S = 0.002
_REMOVE_TRIES = 1000
_TRIM_AFTER_S = 0.5  # of rest: until then free groups are used again


class ZygoteClient:
    """Makes members and buries them."""

    def __init__(self, groups: CgroupManager | None, uids: Iterable[int]) -> None:
        self._groups = groups
        self._uids = deque(uids)
        self._serial = 0
        self._boxes: dict[int, Box] = {}
        self._burials: set[asyncio.Task[None]] = set()
        self._process: subprocess.Popen[bytes] | None = None
        self._life: socket.socket | None = None
        self._control: socket.socket | None = None
        self._started: asyncio.Future[None] | None = None
        self._loss = asyncio.Event()
        self._trimmer: asyncio.TimerHandle | None = None
        self._is_parent = False  # the zygote, of programs' processes
        self.is_alive = False
        self.on_lost: Callable[[], None] = lambda: None

    async def start(self, interpreter: str, config: dict[str, Any]) -> None:
        """A new zygote, which has said that it is ready."""
        loop = asyncio.get_running_loop()
        self._started = loop.create_future()
        self._is_parent = bool(config["has_namespace_pool"])
        self._life, their_life = socket.socketpair()
        self._control, their_control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.setblocking(False)
        keep = (their_life.fileno(), their_control.fileno())
        groups = self._groups.folders if self._groups else []
        script = os.memfd_create("script")
        try:
            _fill(script, bundle.script({**config, "groups": groups, "life": keep[0], "control": keep[1]}))
            self._process = await asyncio.to_thread(_spawn, interpreter, script, keep)
        finally:
            os.close(script)
            their_life.close()
            their_control.close()
        loop.add_reader(self._control.fileno(), self._hear)
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                await self._started
        except TimeoutError:
            await self.stop()
            raise SpawnFailed(f"the zygote was not ready within {_START_TIMEOUT_S:g} s") from None
        except SpawnFailed as error:
            words = await self._last_words()
            raise SpawnFailed(f"the zygote did not start: {words or error}") from None
        self.is_alive = True

    async def _last_words(self) -> str:
        assert self._process is not None and self._process.stderr is not None
        text = (await asyncio.to_thread(self._process.stderr.read)).decode(errors="replace").strip()
        await self.stop()
        return text.rpartition("\n")[2]

    def _hear(self) -> None:
        assert self._control is not None
        try:
            data, descriptors, _, _ = socket.recv_fds(self._control, 4096, 2)
        except BlockingIOError:
            return
        except OSError:
            data, descriptors = b"", []
        if not data:
            self._lose()
            return
        serial, number = protocol.SPAWNED.unpack_from(data)
        if serial and len(data) == protocol.EXITED.size:
            self._hear_end(data)
            return
        if serial == 0:
            assert self._started is not None
            if number:
                self._started.set_exception(SpawnFailed(data[protocol.SPAWNED.size :].decode(errors="replace")))
            else:
                self._started.set_result(None)
            return
        box = self._boxes.get(serial)
        if box is None:  # not waited for any more
            for descriptor in descriptors:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                os.close(descriptor)
        else:
            box.on_made(number, descriptors)

    def _hear_end(self, data: bytes) -> None:
        (serial,) = protocol.SERIAL.unpack_from(data)
        if (box := self._boxes.get(serial)) is not None:
            box.on_ended(data[protocol.SERIAL.size :])

    def _lose(self) -> None:
        assert self._control is not None
        asyncio.get_running_loop().remove_reader(self._control.fileno())
        was_alive, self.is_alive = self.is_alive, False
        self._loss.set()
        if self._started is not None and not self._started.done():
            self._started.set_exception(SpawnFailed("it said nothing"))
        for box in list(self._boxes.values()):
            box.lose()
        if was_alive:
            self.on_lost()

    async def is_lost_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self._loss.wait()
        except TimeoutError:
            return False

    def order(self, kind: int, shape: SpawnLimits, *, is_spare: bool, rehearse: bool = False) -> Box:
        """A member that is on its way: whoever gets it waits until it is ready, and buries it. Raises SpawnFailed."""
        if self._control is None or not self.is_alive:
            raise SpawnFailed("there is no zygote")
        if not self._uids:
            raise SpawnFailed("every user id is taken by a member")
        self._serial += 1
        uid = self._uids.popleft()
        box: Box | None = None
        group: Cgroup | None = None
        try:
            group = self._groups.make(self._serial) if self._groups else None
            box = Box(self._serial, kind, uid, shape, group, is_spare=is_spare, has_zygote_for_parent=self._is_parent)
            self._boxes[self._serial] = box
            box.hand_over(self._control, rehearse=rehearse)
        except OSError as error:
            if box is None:
                self._uids.append(uid)
                if group is not None and self._groups is not None and not self._groups.keep(group):
                    group.remove()
            else:
                box.lose()  # nobody will ever answer for it
                self.bury(box)
            raise SpawnFailed(str(error)) from error
        return box

    async def make(self, kind: int, shape: SpawnLimits, *, rehearse: bool = True) -> Box:
        """A spare member that waits for its code; one that has rehearsed is quicker then. Raises SpawnFailed."""
        box = self.order(kind, shape, is_spare=True, rehearse=rehearse)
        try:
            async with asyncio.timeout(SPAWN_TIMEOUT_S):
                await box.ready()
            if box.group is not None:
                box.group.forget_peak()
        except BaseException as error:
            self.bury(box)
            if isinstance(error, OSError | TimeoutError):
                raise SpawnFailed(str(error) or "a member was not ready in time") from error
            raise
        return box

    def bury(self, box: Box) -> None:
        """In the background: gone, its descriptors closed, its group removed, its user id free again."""
        task = asyncio.get_running_loop().create_task(self._bury(box))
        self._burials.add(task)
        task.add_done_callback(self._burials.discard)

    async def _bury(self, box: Box) -> None:
        await box.gone()
        self._boxes.pop(box.serial, None)
        box.close()
        if box.group is not None and self._groups is not None:
            try:
                await self._give_back(box.group, self._groups)
            except OSError:
                box.group.remove()  # all groups were removed meanwhile; its files are still open
        self._uids.append(box.uid)

    async def _give_back(self, group: Cgroup, groups: CgroupManager) -> None:
        for _ in range(_REMOVE_TRIES):
            if group.is_empty():
                break
            await asyncio.sleep(_REMOVE_AGAIN_S)
        if groups.keep(group):
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
        """The keeper ends the zygote, and with it every member."""
        self.is_alive = False
        if self._trimmer is not None:
            self._trimmer.cancel()
        if self._control is not None:
            asyncio.get_running_loop().remove_reader(self._control.fileno())
            self._control.close()
            self._control = None
        if self._life is not None:
            self._life.close()
        if self._process is not None:
            await asyncio.to_thread(self._process.wait)
            if self._process.stderr is not None:
                self._process.stderr.close()
        for box in list(self._boxes.values()):
            box.lose()  # also those whom nobody will answer for any more
        if self._burials:
            await asyncio.wait(self._burials, timeout=5)


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
        env=_ENVIRONMENT,
        cwd="/",
        start_new_session=True,  # what is sent to our whole group must not reach who cleans up after us
    )
