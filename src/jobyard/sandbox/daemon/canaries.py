"""Programs that try to get out, run through the real path before all others: what they reach, a tier does not hold."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import socket
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from jobyard.sandbox.daemon.cgroup_discovery import started
from jobyard.sandbox.daemon.languages import LanguageDefinition, LanguageSelfTest
from jobyard.sandbox.daemon.supervisor import RunSupervisor
from jobyard.sandbox.daemon.tier_runtime import TierRuntime
from jobyard.sandbox.protocol import Limits, RunFinished, RunRejected, RunRequest, RunVerdict

NAME: Final = "canary"
_DEFINITION = LanguageDefinition(
    version=(), file="main.py", self_test=LanguageSelfTest(source="", stdout=""), memory="address_space"
)

# Prints the name of everything that it should not have been able to do.
_REACH = """
import ctypes, json, os, socket, sys
path, port, parent = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
found = []
def reaches(name, act):
    try:
        if act() is not False:
            found.append(name)
    except (OSError, AttributeError):
        pass
def connect():
    with socket.socket() as s:
        s.settimeout(0.2)
        s.connect(("127.0.0.1", port))
libc = ctypes.CDLL(None)
reaches("read a file of the machine", lambda: open(path).read())
reaches("write to /usr", lambda: open("/usr/canary", "w"))
reaches("write to the root", lambda: open("/canary", "w"))
reaches("read /etc/shadow", lambda: open("/etc/shadow").read())
reaches("open a connection", connect)
reaches("signal the supervisor", lambda: os.kill(parent, 0))
reaches("be root", lambda: os.geteuid() == 0 or os.getuid() == 0)
reaches("become root", lambda: os.setuid(0))
reaches("make a namespace", lambda: libc.unshare(0x10000000) == 0)
reaches("mount", lambda: libc.mount(b"none", b"/usr", b"tmpfs", 0, None) == 0)
reaches("be init", lambda: os.getpid() == 1)
print(json.dumps(found))
"""
_MEMORY = "data = bytearray(256 << 20)\nprint('held it all')"
_FORKS = """
import os, time
count = 0
try:
    while count < 40:
        if os.fork() == 0:
            time.sleep(30)
        count += 1
except OSError:
    pass
print(count)
"""
_FLOOD = "import os\nwhile True: os.write(1, b'x' * 4096)"
_STAY = """
import os, signal, time
for number in range(1, 32):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
try:
    if os.fork() == 0:
        os.setsid()
        os.fork()
except OSError:
    pass
time.sleep(30)
"""
_BAIT = "jobyard-canary"
_LIMITS = Limits(time_seconds=5.0, memory_mb=64, processes=8, output_bytes=10_000)
_SHORT = Limits(time_seconds=0.2, memory_mb=64, processes=8)
# What a layer alone cannot hold; the tests leave the other out on purpose.
_LEFT_OUT = {
    "seccomp": {"make a namespace", "mount"},
    "namespaces": {"signal the supervisor"},
}


class CanaryEscaped(Exception):
    """A canary lived where it should have died; the message says which."""


async def release(runtime: TierRuntime, without: Collection[str] = ()) -> None:
    """Raises Escaped when the place does not hold what its tier promises."""
    supervisor = RunSupervisor(runtime, {NAME: _DEFINITION}, slots=2)
    with _bait() as (path, port, listener):
        arguments = (path, str(port), str(os.getpid()))
        results = await asyncio.gather(
            _run(supervisor, _REACH, _LIMITS, arguments),
            _run(supervisor, _MEMORY, _LIMITS),
            _run(supervisor, _FORKS, _LIMITS),
            _run(supervisor, _FLOOD, _LIMITS),
            _run(supervisor, _STAY, _SHORT),
        )
        _judge_reach(results[0], without)
        if _was_reached(listener):
            raise CanaryEscaped("a program reached a port of this machine")
    _judge_memory(results[1], runtime)
    _judge_forks(results[2], runtime)
    flood, stay = results[3:]
    if flood.verdict is not RunVerdict.OUTPUT_LIMIT or len(flood.stdout) != _LIMITS.output_bytes:
        raise CanaryEscaped(f"output was not cut: {flood.verdict}, {len(flood.stdout)} bytes")
    if stay.verdict is not RunVerdict.TIME_LIMIT:
        raise CanaryEscaped(f"a program that should have run out of time ended with {stay.verdict}")


async def _run(supervisor: RunSupervisor, source: str, limits: Limits, arguments: tuple[str, ...] = ()) -> RunFinished:
    request = RunRequest(id=0, language=NAME, source=source.encode(), args=arguments, limits=limits)
    answer = await supervisor.run(request)
    if isinstance(answer, RunRejected):
        raise CanaryEscaped(f"a canary could not be run: {answer.message}")
    return answer


@contextlib.contextmanager
def _bait() -> Iterator[tuple[str, int, socket.socket]]:
    """A file that everybody may read, and a port that answers."""
    _sweep()
    with (
        tempfile.NamedTemporaryFile("w", prefix=f"{_BAIT}-{os.getpid()}-{started(os.getpid())}-") as file,
        socket.socket() as listener,
    ):
        file.write(secrets.token_hex())
        file.flush()
        os.fchmod(file.fileno(), 0o644)
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        listener.setblocking(False)
        yield file.name, listener.getsockname()[1], listener


def _sweep() -> None:
    """Files of daemons that were killed meanwhile."""
    for path in Path(tempfile.gettempdir()).glob(f"{_BAIT}-*-*-*"):
        _, _, pid, began, _ = path.name.split("-", 4)
        with contextlib.suppress(OSError, ValueError):
            if started(int(pid)) == began:
                continue
        with contextlib.suppress(OSError):
            path.unlink()


def _was_reached(listener: socket.socket) -> bool:
    try:
        connection, _ = listener.accept()
    except BlockingIOError:
        return False
    connection.close()
    return True


def _judge_reach(answer: RunFinished, without: Collection[str]) -> None:
    try:
        found = set(json.loads(answer.stdout))
    except ValueError:
        said = answer.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise CanaryEscaped(f"the canary did not come back: {answer.verdict} {said}") from None
    for layer in without:
        found -= _LEFT_OUT[layer]
    if found:
        raise CanaryEscaped(f"a program could {', '.join(sorted(found))}")


def _judge_memory(answer: RunFinished, runtime: TierRuntime) -> None:
    expected = RunVerdict.MEMORY_LIMIT if runtime.groups is not None else RunVerdict.RUNTIME_ERROR
    if answer.verdict is not expected:
        raise CanaryEscaped(f"memory is not held: a program of 256 MB in 64 MB ended with {answer.verdict}")


def _judge_forks(answer: RunFinished, runtime: TierRuntime) -> None:
    most = _LIMITS.processes if runtime.can_fork else 0
    try:
        count = int(answer.stdout)
    except ValueError:
        raise CanaryEscaped(f"the canary that forks did not come back: {answer.verdict}") from None
    if count > most:
        raise CanaryEscaped(f"processes are not held: {count} children where {most} are allowed")
