"""Attacks that take more than one program: on the daemon itself, on other runs, by those who ask."""

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

from jobyard.sandbox.attacks.connection import DaemonUnresponsive, connect
from jobyard.sandbox.attacks.context import AttackContext
from jobyard.sandbox.attacks.leaks import PROC, descendants, groups
from jobyard.sandbox.attacks.private_daemon import private_daemon
from jobyard.sandbox.protocol import Fault, File, Limits, RunFinished, RunRejected, RunRequest, RunVerdict, encode_frame

LONG = RunRequest(id=0, language="python", source=b"import time\ntime.sleep(30)\n", limits=Limits(time_seconds=30))
HELLO = RunRequest(id=0, language="python", source=b"print('hello')\n")
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
# One is the word searched for itself.
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


@dataclass(frozen=True, slots=True)
class Scenario:
    number: int
    name: str
    expected: str
    run_attack: Callable[[AttackContext], Awaitable[list[str]]]
    needs_own: bool = False  # it does harm to the daemon


async def _hello(context: AttackContext, why: str) -> list[str]:
    seen = await context.connection.run(HELLO)
    is_well = isinstance(seen, RunFinished) and seen.stdout == b"hello\n"
    return [] if is_well else [f"{why}: {seen}"[:200]]


async def _bad_limits(context: AttackContext) -> list[str]:
    found = []
    limits = [Limits(time_seconds=number) for number in BAD_NUMBERS]
    limits += [Limits(cpu_seconds=number) for number in BAD_NUMBERS]
    for word in ("memory_mb", "processes", "files_open", "output_bytes", "disk_mb", "disk_files"):
        limits += [Limits(**{word: number}) for number in (0, -1, 1 << 62)]
    for each in limits:
        seen = await context.connection.run(
            RunRequest(id=0, language="python", source=b"print('it ran')", limits=each), seconds=10
        )
        if not isinstance(seen, RunRejected):
            found.append(f"it ran with {_odd(each)}")
    return found


def _odd(limits: Limits) -> str:
    usual = Limits()
    return next(
        f"{name}={getattr(limits, name)}"
        for name in limits.__struct_fields__
        if getattr(limits, name) != getattr(usual, name)
    )


async def _memory_of_others(context: AttackContext) -> list[str]:
    word = secrets.token_hex(16)
    source = f"kept = '{word}'\nprint(input())\n".encode()
    found = []
    for _ in range(6):
        seen = await context.connection.run(
            RunRequest(id=0, language="python", source=source, stdin=word.encode(), args=(word,))
        )
        if not isinstance(seen, RunFinished) or seen.stdout.strip() != word.encode():
            found.append(f"the first program: {seen}"[:200])
        search = SEARCH.replace("@HALF@", word[:16]).replace("@OTHER@", word[16:])
        again = await context.connection.run(RunRequest(id=0, language="python", source=search.encode()))
        if not isinstance(again, RunFinished) or again.stdout != b"found: 0\n":
            found.append(f"a later program found it: {again}"[:300])
    return found


async def _network_of_others(context: AttackContext) -> list[str]:
    """More runs than there are members in a pool, some at once: each finds its network as the first one did."""
    run = RunRequest(id=0, language="python", source=NETWORK.encode())
    seen = [await context.connection.run(run) for _ in range(12)]
    seen += await asyncio.gather(*(context.connection.run(run) for _ in range(12)))
    texts = {each.stdout if isinstance(each, RunFinished) else str(each).encode() for each in seen}
    return [] if len(texts) == 1 and b"Refused" not in b"".join(texts) else [f"not all alike: {sorted(texts)}"[:200]]


async def _two_at_once(context: AttackContext) -> list[str]:
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
    first = asyncio.create_task(context.connection.run(RunRequest(id=0, language="python", source=one.encode())))
    await asyncio.sleep(0.2)
    second = await context.connection.run(RunRequest(id=0, language="python", source=other.encode()))
    await first
    is_blind = isinstance(second, RunFinished) and second.stdout == b"[]\n[]\n"
    return [] if is_blind else [f"it sees the other: {second}"[:200]]


async def _client_leaves(context: AttackContext) -> list[str]:
    async with connect(context.socket) as other:
        await other.ready()
        other.begin(LONG)
        await _until_running(context, 1)
    began = time.monotonic()
    while (await context.connection.fetch_state()).running:
        if time.monotonic() - began > 2:
            return ["its run goes on 2 s after it left"]
        await asyncio.sleep(0.01)
    return await _hello(context, "afterwards")


async def _cancelled(context: AttackContext) -> list[str]:
    number, answer = context.connection.begin(LONG)
    await _until_running(context, 1)
    context.connection.cancel(number)
    context.connection.cancel(number)
    context.connection.cancel(10**9)
    seen = await asyncio.wait_for(answer, 5)
    is_told = isinstance(seen, RunRejected) and seen.fault is Fault.CANCELLED
    return [] if is_told else [f"the answer to a cancelled run: {seen}"[:200]]


async def _garbage(context: AttackContext) -> list[str]:
    for data in (
        b"\xff" * 64,
        b"\x00\x00\x00\x05hello",
        b"\x00\x00\x00\x00",
        b"\x00\x00\x01\x00half",
        b"GET / HTTP/1.1\r\n\r\n",
    ):
        _, writer = await asyncio.open_unix_connection(os.fspath(context.socket))
        writer.write(data)
        with suppress(OSError):
            await writer.drain()
            await asyncio.sleep(0.02)
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
    return await _hello(context, "after garbage on its socket")


async def _deaf_client(context: AttackContext) -> list[str]:
    """Asks for much output, live, and never reads it: others must not wait for it."""
    _, writer = await asyncio.open_unix_connection(os.fspath(context.socket), limit=1024)
    loud = RunRequest(
        id=1,
        language="python",
        source=b"import os\nfor _ in range(200): os.write(1, b'x' * 65536)\n",
        limits=Limits(time_seconds=2, output_bytes=16 << 20),
        stream=True,
    )
    for _ in range(2):
        writer.write(encode_frame(loud))
    await asyncio.sleep(0.2)
    found = await _hello(context, "beside a client that does not read")
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return found


async def _more_than_slots(context: AttackContext) -> list[str]:
    count = 4 * max(1, context.state.slots) + 8
    answers = await asyncio.gather(*(context.connection.run(HELLO) for _ in range(count)))
    bad = [seen for seen in answers if not (isinstance(seen, RunFinished) and seen.verdict is RunVerdict.OK)]
    return [f"{len(bad)} of {count} failed: {bad[0]}"[:200]] if bad else []


async def _stale_program(context: AttackContext) -> list[str]:
    """The same source with another file beside it is another program."""
    if "c" not in {language.name for language in context.state.languages}:
        return []
    found = []
    for number in (11, 12, 11):
        files = (File(name="value.h", data=f"#define VALUE {number}\n".encode()),)
        source = b'#include "value.h"\nint main(void) { return VALUE; }\n'
        seen = await context.connection.run(RunRequest(id=0, language="c", source=source, files=files))
        if not isinstance(seen, RunFinished) or (
            seen.exit_code != number and seen.verdict is not RunVerdict.COMPILE_ERROR
        ):
            found.append(f"with {number}: {seen}"[:200])
    return found


async def _compilers_left(context: AttackContext) -> list[str]:
    """Slow compilations, each cancelled at once: none of them may go on."""
    if "cpp" not in {language.name for language in context.state.languages}:
        return []
    for number in range(6):
        source = SLOW_TO_COMPILE.replace("@NUMBER@", str(number)).encode()
        one, answer = context.connection.begin(RunRequest(id=0, language="cpp", source=source))
        await asyncio.sleep(0.1)
        context.connection.cancel(one)
        await asyncio.wait_for(answer, 10)
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
    """The run that was going on is told as lost or goes on; the next one works."""
    _, answer = context.connection.begin(LONG)
    await _until_running(context, 1)
    for zygote in _children(context.connection.daemon_pid):
        with suppress(ProcessLookupError):
            os.kill(zygote, signal.SIGKILL)
    seen = await asyncio.wait_for(answer, 40)
    found = []
    if not (isinstance(seen, RunRejected) and seen.fault in {Fault.ZYGOTE_LOST, Fault.SPAWN_FAILED, Fault.INTERNAL}):
        found.append(f"the run said: {seen}"[:200])
    return found + await _hello(context, "the next run")


async def _threads_of_others(context: AttackContext) -> list[str]:
    """Many threads in the runs of one daemon take none from the runs of another."""
    many = THREADS.replace("@COUNT@", "100").replace("@SECONDS@", "1.5").encode()
    few = THREADS.replace("@COUNT@", "6").replace("@SECONDS@", "0.01").encode()
    wide = Limits(time_seconds=8, memory_mb=256, processes=128)
    async with (
        private_daemon(tier=context.tier, without=context.without, slots=4) as own,
        connect(own.socket) as connection,
    ):
        await connection.ready()
        hogs = [connection.begin(RunRequest(id=0, language="python", source=many, limits=wide))[1] for _ in range(4)]
        await asyncio.sleep(0.5)
        found = []
        for _ in range(8):
            seen = await context.connection.run(
                RunRequest(id=0, language="python", source=few, limits=Limits(memory_mb=512))
            )
            if not isinstance(seen, RunFinished) or seen.stdout != b"6\n":
                found.append(f"threads are missing: {seen}"[:200])
        await asyncio.wait(hogs, timeout=20)
    return found[:1]


async def _supervisor_killed(context: AttackContext) -> list[str]:
    """On a second daemon, as this one is still needed."""
    async with private_daemon(tier=context.tier, without=context.without, slots=2) as own:
        async with connect(own.socket) as connection:
            await connection.ready()
            connection.begin(LONG)
            await asyncio.sleep(0.1)
            below = descendants(connection.daemon_pid)
            os.kill(connection.daemon_pid, signal.SIGKILL)
            own.process.wait(5)
        if len(below) < 2:
            return ["there was nothing to survive"]
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline:
            alive = [pid for pid in below if _is_alive(pid)]
            kept = list(groups(connection.daemon_pid))
            if not alive and not kept:
                return []
            await asyncio.sleep(0.02)
    return [f"{len(alive)} processes and {len(kept)} control groups are left 3 s after its death"]


def _children(daemon: int) -> list[int]:
    return [pid for pid in descendants(daemon) if _parent(pid) == daemon]


def _parent(pid: int) -> int:
    try:
        return int((PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _is_alive(pid: int) -> bool:
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except OSError:
        return False


async def _until_running(context: AttackContext, count: int) -> None:
    deadline = time.monotonic() + 5
    while (await context.connection.fetch_state()).running < count:
        if time.monotonic() > deadline:
            raise DaemonUnresponsive("a run that was asked for does not begin")
        await asyncio.sleep(0.005)


SCENARIOS = (
    Scenario(110, "limits that are none", "each refused", _bad_limits),
    Scenario(111, "the memory of the run before", "nothing of it found", _memory_of_others),
    Scenario(152, "the network of the run before", "as if it were new", _network_of_others),
    Scenario(112, "two at once", "neither sees the other", _two_at_once),
    Scenario(113, "the client leaves", "its run ends", _client_leaves),
    Scenario(114, "the client cancels, twice", "told as cancelled", _cancelled),
    Scenario(115, "garbage on the socket", "others go on", _garbage),
    Scenario(116, "a client that never reads", "others go on", _deaf_client),
    Scenario(117, "more runs than slots", "all of them run", _more_than_slots),
    Scenario(145, "the same source with other files", "compiled anew", _stale_program),
    Scenario(149, "compilations that are cancelled", "none goes on", _compilers_left),
    Scenario(118, "the zygote is killed", "told, and the next run works", _zygote_killed, needs_own=True),
    Scenario(151, "threads of another daemon's runs", "none is missing", _threads_of_others, needs_own=True),
    Scenario(119, "the supervisor is killed", "nothing survives", _supervisor_killed, needs_own=True),
)
