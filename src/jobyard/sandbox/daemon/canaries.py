"""Canaries: programs that try to escape, run through the real code path before a tier is used."""

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

from jobyard.sandbox.daemon.cgroup_discovery import start_time
from jobyard.sandbox.daemon.languages import LanguageDefinition, LanguageSelfTest
from jobyard.sandbox.daemon.supervisor import RunSupervisor
from jobyard.sandbox.daemon.tier_runtime import TierRuntime
from jobyard.sandbox.protocol import Limits, RunFinished, RunRejected, RunRequest, RunVerdict

NAME: Final = "canary"
_DEFINITION = LanguageDefinition(
    version=(), file="main.py", self_test=LanguageSelfTest(source="", stdout=""), memory="address_space"
)

# Prints what it was able to do and should not have been.
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
def connect_by_name():
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(0.2)
        s.connect(f"\\0jobyard-canary-{port}")
libc = ctypes.CDLL(None)
reaches("read a file of the machine", lambda: open(path).read())
reaches("write to /usr", lambda: open("/usr/canary", "w"))
reaches("write to the root", lambda: open("/canary", "w"))
reaches("read /etc/shadow", lambda: open("/etc/shadow").read())
reaches("open a connection", connect)
reaches("connect to a Unix socket of the machine", connect_by_name)
reaches("signal the daemon", lambda: os.kill(parent, 0))
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
# What succeeds without a layer, which tests leave out on purpose.
_EXPECTED_WITHOUT = {"seccomp": {"make a namespace", "mount"}, "namespaces": {"signal the daemon"}}


class CanaryEscaped(Exception):
    """A canary was not contained; the message says which."""


async def run_canaries(runtime: TierRuntime, without: Collection[str] = ()) -> None:
    """Raise CanaryEscaped unless the runtime provides the isolation of its tier."""
    supervisor = RunSupervisor(runtime, {NAME: _DEFINITION}, slots=2)
    with bait() as (path, port, listener):
        arguments = (path, str(port), str(os.getpid()))
        results = await asyncio.gather(
            _run(supervisor, _REACH, _LIMITS, arguments),
            _run(supervisor, _MEMORY, _LIMITS),
            _run(supervisor, _FORKS, _LIMITS),
            _run(supervisor, _FLOOD, _LIMITS),
            _run(supervisor, _STAY, _SHORT),
        )
        _check_reach(results[0], without)
        if _has_connection(listener):
            raise CanaryEscaped("a program connected to a port of this machine")
    _check_memory(results[1], runtime)
    _check_forks(results[2], runtime)
    flood, stay = results[3:]
    if flood.verdict is not RunVerdict.OUTPUT_LIMIT or len(flood.stdout) != _LIMITS.output_bytes:
        raise CanaryEscaped(f"the output limit failed: {flood.verdict}, {len(flood.stdout)} bytes")
    if stay.verdict is not RunVerdict.TIME_LIMIT:
        raise CanaryEscaped(f"the time limit failed: a program that sleeps ended with {stay.verdict}")


async def _run(supervisor: RunSupervisor, source: str, limits: Limits, arguments: tuple[str, ...] = ()) -> RunFinished:
    request = RunRequest(id=0, language=NAME, source=source.encode(), args=arguments, limits=limits)
    answer = await supervisor.run(request)
    if isinstance(answer, RunRejected):
        raise CanaryEscaped(f"cannot run a canary: {answer.message}")
    return answer


@contextlib.contextmanager
def bait() -> Iterator[tuple[str, int, socket.socket]]:
    """A world-readable file, a listening port, and an abstract Unix socket named after the port."""
    _sweep()
    with (
        tempfile.NamedTemporaryFile("w", prefix=f"{_BAIT}-{os.getpid()}-{start_time(os.getpid())}-") as file,
        socket.socket() as listener,
        socket.socket(socket.AF_UNIX) as named,
    ):
        file.write(secrets.token_hex())
        file.flush()
        os.fchmod(file.fileno(), 0o644)
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        listener.setblocking(False)
        named.bind(f"\0{_BAIT}-{listener.getsockname()[1]}")
        named.listen(1)
        yield file.name, listener.getsockname()[1], listener


def _sweep() -> None:
    """Remove bait files of daemons that were killed."""
    for path in Path(tempfile.gettempdir()).glob(f"{_BAIT}-*-*-*"):
        _, _, pid, started, _ = path.name.split("-", 4)
        with contextlib.suppress(OSError, ValueError):
            if start_time(int(pid)) == started:
                continue
        with contextlib.suppress(OSError):
            path.unlink()


def _has_connection(listener: socket.socket) -> bool:
    try:
        connection, _ = listener.accept()
    except BlockingIOError:
        return False
    connection.close()
    return True


def _check_reach(answer: RunFinished, without: Collection[str]) -> None:
    try:
        found = set(json.loads(answer.stdout))
    except ValueError:
        said = answer.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise CanaryEscaped(f"the canary did not finish: {answer.verdict} {said}") from None
    for layer in without:
        found -= _EXPECTED_WITHOUT[layer]
    if found:
        raise CanaryEscaped(f"a program could {', '.join(sorted(found))}")


def _check_memory(answer: RunFinished, runtime: TierRuntime) -> None:
    expected = RunVerdict.MEMORY_LIMIT if runtime.groups is not None else RunVerdict.RUNTIME_ERROR
    if answer.verdict is not expected:
        raise CanaryEscaped(
            f"the memory limit failed: a program that takes 256 MB of 64 MB ended with {answer.verdict}"
        )


def _check_forks(answer: RunFinished, runtime: TierRuntime) -> None:
    most = _LIMITS.processes if runtime.can_fork else 0
    try:
        count = int(answer.stdout)
    except ValueError:
        raise CanaryEscaped(f"the forking canary did not finish: {answer.verdict}") from None
    if count > most:
        raise CanaryEscaped(f"the process limit failed: {count} children, {most} allowed")
