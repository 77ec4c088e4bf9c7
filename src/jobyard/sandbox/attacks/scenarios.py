"""Attacks that take more than one program: on the daemon itself, on other runs, by clients."""

from __future__ import annotations

import asyncio
import math
import os
import secrets
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from jobyard.sandbox import protocol as p
from jobyard.sandbox.attacks.attack import DEFAULT_LIMITS, Attack, Expectation, Layer
from jobyard.sandbox.attacks.connection import DaemonConnection, DaemonUnresponsive, connect
from jobyard.sandbox.attacks.honeypot import Honeypot
from jobyard.sandbox.attacks.leaks import PROC, ResourceSnapshot, descendants, groups
from jobyard.sandbox.attacks.private_daemon import private_daemon


def python_request(source: str, limits: p.Limits = DEFAULT_LIMITS) -> p.RunRequest:
    return p.RunRequest(id=0, language="python", source=source.encode(), limits=limits)


LONG = python_request("import time\ntime.sleep(30)\n", p.Limits(time_seconds=30))
HELLO = python_request("print('hello')\n")
BAD_NUMBERS = (0.0, -1.0, math.nan, math.inf, -math.inf, 1e308)
THREADS = """\
import os, threading, time
count = 0
for _ in range(@COUNT@):
    try:
        threading.Thread(target=time.sleep, args=(@SECONDS@,), daemon=True).start()
        count += 1
    except RuntimeError:
        pass
print(count, flush=True)
time.sleep(@SECONDS@)
os._exit(0)
"""
GREEDY = """\
import threading, time
threading.stack_size(64 << 10)
is_told = False
while True:
    try:
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    except RuntimeError:
        if not is_told:
            print("full", flush=True)
        is_told = True
        time.sleep(0.001)  # and take each place that becomes free
"""
SLOW_TO_COMPILE = """\
#include <regex>
template <int N, int M> struct F { static constexpr long v = F<N - 1, M>::v + F<N - 1, M + 1>::v; };
template <int M> struct F<0, M> { static constexpr long v = M; };
int main() { std::regex one("@NUMBER@"); return F<60, 0>::v & 1; }
"""
SEARCH = """\
import re
wanted = ("@HALF@" + "@OTHER@").encode()
found = 0
try:
    for line in open("/proc/self/maps"):
        if "r" in line.split()[1][:1] and "[v" not in line:
            first, last = (int(word, 16) for word in line.split()[0].split("-"))
            try:
                with open("/proc/self/mem", "rb", buffering=0) as memory:
                    memory.seek(first)
                    found += memory.read(last - first).count(wanted)
            except (OSError, OverflowError, ValueError):
                pass
except OSError:
    pass
# The search pattern itself is in memory, too.
print(f"found: {max(0, found - 2)}")
"""
NETWORK = """\
import array, hashlib, socket
seen = hashlib.sha256()
for name in "dev snmp snmp6 tcp tcp6 udp udp6 unix raw packet".split():
    try:
        seen.update(open(f"/proc/self/net/{name}", "rb").read())
    except OSError as error:
        seen.update(str(error.errno).encode())
print(seen.hexdigest())
for family, kind, address in (
    (socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 9)),
    (socket.AF_INET, socket.SOCK_DGRAM, ("10.1.2.3", 9)),
    (socket.AF_INET, socket.SOCK_STREAM, ("10.1.2.3", 9)),
    (socket.AF_INET6, socket.SOCK_DGRAM, ("fe80::1", 9)),
    (socket.AF_UNIX, socket.SOCK_STREAM, "\\0left"),
):
    try:
        made = socket.socket(family, kind)
        made.bind(address) if family == socket.AF_UNIX else made.connect(address)
        made.send(b"left")
    except OSError:
        pass
try:
    one, other = socket.socketpair()
    both = array.array("i", [one.fileno(), other.fileno()])
    one.sendmsg([b"left"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, both)])
except OSError:
    pass
"""


@dataclass(slots=True)
class AttackContext:
    connection: DaemonConnection
    honeypot: Honeypot
    socket: Path
    state: p.SandboxState
    without: Layer | None = None
    is_private: bool = False
    is_warm: bool = False
    snapshot: ResourceSnapshot | None = None  # before the attacks; None after a problem

    def offers(self, language: str) -> bool:
        return language in {known.name for known in self.state.languages}

    def can_run(self, attack: Attack) -> bool:
        return self.offers(attack.language) and not self.lacks(attack)

    def lacks(self, item: Attack | Scenario) -> str:
        """What the operator has not allowed and the attack needs; empty if nothing."""
        if item.needs_unix_sockets and not self.state.unix_sockets:
            return "programs have no Unix sockets"
        if item.needs_tcp and not self.state.tcp_sockets:
            return "programs have no TCP"
        return ""

    def expectation(self, attack: Attack) -> Expectation:
        return attack.expectation(
            self.tier, self.without, has_unix_sockets=self.state.unix_sockets, has_tcp=self.state.tcp_sockets > 0
        )

    @property
    def tier(self) -> p.Tier:
        assert self.state.tier is not None
        return self.state.tier


@dataclass(frozen=True, slots=True)
class Scenario:
    number: int
    name: str
    expected: str
    run_attack: Callable[[AttackContext], Awaitable[list[str]]]
    needs_private_daemon: bool = False  # it harms the daemon
    needs_unix_sockets: bool = False
    needs_tcp: bool = False


async def _run_hello(context: AttackContext, why: str) -> list[str]:
    seen = await context.connection.run(HELLO)
    is_ok = isinstance(seen, p.RunFinished) and seen.stdout == b"hello\n"
    return [] if is_ok else [f"{why}: {seen}"[:200]]


async def _bad_limits(context: AttackContext) -> list[str]:
    found = []
    limits = [p.Limits(time_seconds=number) for number in BAD_NUMBERS]
    limits += [p.Limits(cpu_seconds=number) for number in BAD_NUMBERS]
    for word in ("memory_mb", "processes", "files_open", "output_bytes", "disk_mb", "disk_files"):
        limits += [p.Limits(**{word: number}) for number in (0, -1, 1 << 62)]
    for each in limits:
        seen = await context.connection.run(python_request("print('it ran')", each), seconds=10)
        if not isinstance(seen, p.RunRejected):
            found.append(f"it ran with {_changed_limit(each)}")
    return found


def _changed_limit(limits: p.Limits) -> str:
    usual = p.Limits()
    return next(
        f"{name}={getattr(limits, name)}"
        for name in limits.__struct_fields__
        if getattr(limits, name) != getattr(usual, name)
    )


async def _memory_of_previous_run(context: AttackContext) -> list[str]:
    word = secrets.token_hex(16)
    first = msgspec.structs.replace(
        python_request(f"kept = '{word}'\nprint(input())\n"), stdin=word.encode(), args=(word,)
    )
    found = []
    for _ in range(6):
        seen = await context.connection.run(first)
        if not isinstance(seen, p.RunFinished) or seen.stdout.strip() != word.encode():
            found.append(f"the first program: {seen}"[:200])
        search = SEARCH.replace("@HALF@", word[:16]).replace("@OTHER@", word[16:])
        again = await context.connection.run(python_request(search))
        if not isinstance(again, p.RunFinished) or again.stdout != b"found: 0\n":
            found.append(f"a later program found it: {again}"[:300])
    return found


async def _network_of_previous_run(context: AttackContext) -> list[str]:
    """More runs than a pool has boxes, some concurrent: each finds its network as the first one did."""
    run = python_request(NETWORK)
    seen = [await context.connection.run(run) for _ in range(12)]
    seen += await asyncio.gather(*(context.connection.run(run) for _ in range(12)))
    texts = {each.stdout if isinstance(each, p.RunFinished) else str(each).encode() for each in seen}
    is_same = len(texts) == 1 and isinstance(seen[0], p.RunFinished)
    return [] if is_same else [f"networks differ: {sorted(texts)}"[:200]]


async def _concurrent_runs(context: AttackContext) -> list[str]:
    word = f"jobyard-attack-{secrets.token_hex(8)}"
    one = (
        "import os, time\n"
        f"for place in ('.', '/tmp', '/dev/shm'):\n    try:\n        open(os.path.join(place, '{word}'), 'w').close()\n"
        "    except OSError:\n        pass\n"
        "print(os.getpid(), flush=True)\ntime.sleep(0.5)\n"
    )
    other = (
        "import os\n"
        f"print([place for place in ('.', '/tmp', '/dev/shm') if os.path.exists(os.path.join(place, '{word}'))])\n"
        "try:\n    names = os.listdir('/proc')\nexcept OSError:\n    names = []\n"
        "print([name for name in names if name.isdigit() and int(name) not in (1, os.getpid())])\n"
    )
    first = await begin_and_wait_for_output(context.connection, one.encode())
    second = await context.connection.run(python_request(other))
    await first
    is_blind = isinstance(second, p.RunFinished) and second.stdout == b"[]\n[]\n"
    return [] if is_blind else [f"it sees the other: {second}"[:200]]


async def _client_disconnects(context: AttackContext) -> list[str]:
    async with connect(context.socket) as other:
        await other.ready()
        other.begin(LONG)
        await _until_running(context.connection, 1)
    began = time.monotonic()
    while (await context.connection.fetch_state()).running:
        if time.monotonic() - began > 2:
            return ["its run continues 2 s after the disconnect"]
        await asyncio.sleep(0.01)
    return await _run_hello(context, "afterwards")


async def _cancelled(context: AttackContext) -> list[str]:
    number, answer = context.connection.begin(LONG)
    await _until_running(context.connection, 1)
    context.connection.cancel(number)
    context.connection.cancel(number)
    context.connection.cancel(10**9)
    async with asyncio.timeout(5):
        seen = await answer
    is_cancelled = isinstance(seen, p.RunRejected) and seen.fault is p.Fault.CANCELLED
    return [] if is_cancelled else [f"the answer to a cancelled run: {seen}"[:200]]


async def _garbage(context: AttackContext) -> list[str]:
    for data in (
        b"\xff" * 64,
        b"\x00\x00\x00\x05hello",
        b"\x00\x00\x00\x00",
        b"\x00\x00\x01\x00half",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x00\x00\x00\x08\x81\xa4type\xa1\xff",  # not UTF-8
    ):
        _, writer = await asyncio.open_unix_connection(os.fspath(context.socket))
        writer.write(data)
        with suppress(OSError):
            await writer.drain()
            await asyncio.sleep(0.02)  # closed at once, the garbage might not be read at all
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
    return await _run_hello(context, "after garbage on its socket")


async def _client_never_reads(context: AttackContext) -> list[str]:
    """A client that requests much live output and never reads it must not delay others."""
    _, writer = await asyncio.open_unix_connection(os.fspath(context.socket), limit=1024)
    loud = p.RunRequest(
        id=1,
        language="python",
        source=b"import os\nfor _ in range(200): os.write(1, b'x' * 65536)\n",
        limits=p.Limits(time_seconds=2, output_bytes=16 << 20),
        stream=True,
    )
    for _ in range(2):
        writer.write(p.encode_frame(loud))
    await asyncio.sleep(0.2)  # until the output fills the socket's buffer
    found = await _run_hello(context, "with a client that does not read")
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return found


async def _more_runs_than_slots(context: AttackContext) -> list[str]:
    count = 4 * max(1, context.state.slots) + 8
    answers = await asyncio.gather(*(context.connection.run(HELLO) for _ in range(count)))
    bad = [seen for seen in answers if not (isinstance(seen, p.RunFinished) and seen.verdict is p.RunVerdict.OK)]
    return [f"{len(bad)} of {count} failed: {bad[0]}"[:200]] if bad else []


async def _same_source_other_files(context: AttackContext) -> list[str]:
    """The same source with another file is another program."""
    if "c" not in {language.name for language in context.state.languages}:
        return []
    found = []
    for number in (11, 12, 11):
        files = (p.File(name="value.h", data=f"#define VALUE {number}\n".encode()),)
        source = b'#include "value.h"\nint main(void) { return VALUE; }\n'
        seen = await context.connection.run(p.RunRequest(id=0, language="c", source=source, files=files))
        if not isinstance(seen, p.RunFinished) or (
            seen.exit_code != number and seen.verdict is not p.RunVerdict.COMPILE_ERROR
        ):
            found.append(f"with {number}: {seen}"[:200])
    return found


async def _cancelled_compilations(context: AttackContext) -> list[str]:
    """Slow compilations, each cancelled at once: none may continue."""
    if "cpp" not in {language.name for language in context.state.languages}:
        return []
    for number in range(6):
        source = SLOW_TO_COMPILE.replace("@NUMBER@", str(number)).encode()
        one, answer = context.connection.begin(p.RunRequest(id=0, language="cpp", source=source))
        async with asyncio.timeout(10):
            while not (_compilers(context) or answer.done()):  # noqa: ASYNC110 - a look at /proc
                await asyncio.sleep(0.005)
        context.connection.cancel(one)
        async with asyncio.timeout(10):
            await answer
    began = time.monotonic()
    while (running := (await context.connection.fetch_state()).running) or _compilers(context):
        if time.monotonic() - began > 2:
            return [f"{running} running and {_compilers(context)} compilers 2 s after the last was cancelled"]
        await asyncio.sleep(0.02)
    return []


def _compilers(context: AttackContext) -> int:
    found = 0
    for pid in descendants(context.connection.daemon_pid):
        with suppress(OSError):
            found += (PROC / str(pid) / "comm").read_text().startswith("cc1")
    return found


async def _zygote_killed(context: AttackContext) -> list[str]:
    """The run in flight is reported as lost; the next one works."""
    _, answer = context.connection.begin(LONG)
    await _until_running(context.connection, 1)
    for zygote in _children(context.connection.daemon_pid):
        with suppress(ProcessLookupError):
            os.kill(zygote, signal.SIGKILL)
    async with asyncio.timeout(40):
        seen = await answer
    found = []
    if not (
        isinstance(seen, p.RunRejected) and seen.fault in {p.Fault.ZYGOTE_LOST, p.Fault.SPAWN_FAILED, p.Fault.INTERNAL}
    ):
        found.append(f"the run in flight: {seen}"[:200])
    return found + await _run_hello(context, "the next run")


async def _threads_of_another_daemon(context: AttackContext) -> list[str]:
    """Many threads in runs of one daemon must not reduce those of another."""
    many = THREADS.replace("@COUNT@", "40").replace("@SECONDS@", "6").encode()
    few = THREADS.replace("@COUNT@", "6").replace("@SECONDS@", "0.01")
    wide = p.Limits(time_seconds=8, memory_mb=256, processes=128)
    async with (
        private_daemon(tier=context.tier, without=context.without, slots=4, pool=0, languages=["python"]) as daemon,
        connect(daemon.socket) as connection,
    ):
        await connection.ready()
        await asyncio.gather(*(begin_and_wait_for_output(connection, many, wide) for _ in range(4)))
        found = []
        for _ in range(8):
            seen = await context.connection.run(python_request(few, p.Limits(memory_mb=512)))
            if not isinstance(seen, p.RunFinished) or seen.stdout != b"6\n":
                found.append(f"threads are missing: {seen}"[:200])
    return found[:1]


async def _threads_of_another_run(context: AttackContext) -> list[str]:
    """A program that has started every thread it can must not keep others from starting."""
    is_full = asyncio.Event()
    wide = p.Limits(time_seconds=20, memory_mb=512)
    greedy = p.RunRequest(id=0, language="python", source=GREEDY.encode(), limits=wide, stream=True)
    number, response = context.connection.begin(greedy, lambda _: is_full.set())
    async with asyncio.timeout(20):
        await is_full.wait()
    found: list[str] = []
    for _ in range(16):  # more than are warm
        found += await _run_hello(context, "beside it")
    context.connection.cancel(number)
    await response
    return found[:1]


async def _daemon_killed(context: AttackContext) -> list[str]:
    """Kill a second daemon, as this one is still needed."""
    async with private_daemon(
        tier=context.tier, without=context.without, slots=2, pool=1, languages=["python"]
    ) as daemon:
        async with connect(daemon.socket) as connection:
            await connection.ready()
            connection.begin(LONG)
            await _until_running(connection, 1)
            below = descendants(connection.daemon_pid)
            os.kill(connection.daemon_pid, signal.SIGKILL)
            daemon.process.wait(5)
        if len(below) < 2:
            return ["the daemon had no processes to leave behind"]
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline:
            alive = [pid for pid in below if _is_alive(pid)]
            kept = list(groups(connection.daemon_pid))
            if not alive and not kept:
                return []
            await asyncio.sleep(0.02)
    return [f"{len(alive)} processes and {len(kept)} cgroups are left 3 s after its death"]


def _children(daemon: int) -> list[int]:
    return [pid for pid in descendants(daemon) if _stat(pid)[1] == str(daemon)]


def _stat(pid: int) -> list[str]:
    """State, parent and further fields of a process; X if it is gone."""
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ["X", "0"]


def _is_alive(pid: int) -> bool:
    return _stat(pid)[0] not in {"Z", "X"}


async def begin_and_wait_for_output(
    connection: DaemonConnection, source: bytes, limits: p.Limits = DEFAULT_LIMITS
) -> asyncio.Future[p.RunResponse]:
    """Begin a run that prints a line when it is where it should be."""
    first_output = asyncio.Event()
    request = p.RunRequest(id=0, language="python", source=source, limits=limits, stream=True)
    _, response = connection.begin(request, lambda _: first_output.set())
    async with asyncio.timeout(10):
        await first_output.wait()
    return response


async def _until_running(connection: DaemonConnection, count: int) -> None:
    deadline = time.monotonic() + 5
    while (await connection.fetch_state()).running < count:
        if time.monotonic() > deadline:
            raise DaemonUnresponsive("a requested run does not start")
        await asyncio.sleep(0.005)


SCENARIOS = (
    Scenario(110, "invalid limits", "each rejected", _bad_limits),
    Scenario(111, "memory of the previous run", "nothing found", _memory_of_previous_run),
    Scenario(152, "network of the previous run", "same as new", _network_of_previous_run),
    Scenario(112, "two concurrent runs", "neither sees the other", _concurrent_runs),
    Scenario(113, "client disconnects", "its run ends", _client_disconnects),
    Scenario(114, "client cancels twice", "reported as cancelled", _cancelled),
    Scenario(115, "garbage on the socket", "other clients unaffected", _garbage),
    Scenario(116, "client that never reads", "other clients unaffected", _client_never_reads),
    Scenario(117, "more runs than slots", "all run", _more_runs_than_slots),
    Scenario(145, "same source with other files", "recompiled", _same_source_other_files),
    Scenario(149, "cancelled compilations", "none continues", _cancelled_compilations),
    Scenario(165, "threads of a concurrent run", "others start", _threads_of_another_run),
    Scenario(118, "zygote killed", "reported, and the next run works", _zygote_killed, needs_private_daemon=True),
    Scenario(
        151, "threads of another daemon's runs", "none missing", _threads_of_another_daemon, needs_private_daemon=True
    ),
    Scenario(119, "daemon killed", "nothing survives", _daemon_killed, needs_private_daemon=True),
)
