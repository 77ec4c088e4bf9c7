"""Attacks through Unix sockets that take more than one program."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from jobyard.sandbox import protocol as p
from jobyard.sandbox.attacks.scenarios import AttackContext, Scenario, begin_and_wait_for_output, python_request

LISTEN = """\
import os, socket, time
kept = []
for address in ("\\0jobyard-attack", "/tmp/jobyard-attack"):
    kept.append(socket.socket(socket.AF_UNIX))
    kept[-1].bind(address)
    kept[-1].listen()
print("listens", flush=True)
"""
LISTEN_LONGER = LISTEN + "time.sleep(1)\n"
LEAVE_LISTENER = LISTEN + "if os.fork() == 0:\n    time.sleep(30)\nos._exit(0)\n"
REACH = """\
import errno, socket
for name, address in (("name", "\\0jobyard-attack"), ("path", "/tmp/jobyard-attack")):
    with socket.socket(socket.AF_UNIX) as one:
        try:
            one.connect(address)
            print(f"{name}: ESCAPED")
        except OSError as error:
            print(f"{name}: {errno.errorcode[error.errno]}")
print("listed:", open("/proc/self/net/unix").read().count("jobyard-attack"))
"""
NOT_REACHED = b"name: ECONNREFUSED\npath: ENOENT\nlisted: 0\n"


async def _concurrent_run(context: AttackContext) -> list[str]:
    """The second program reaches no socket of the first, and a third can use the same names."""
    first = await begin_and_wait_for_output(context.connection, LISTEN_LONGER.encode())
    second = await context.connection.run(python_request(REACH))
    third = await context.connection.run(python_request(LISTEN))
    if first.done():
        return ["the first program ended too early"]
    return [*_problems([second], NOT_REACHED), *_problems([third, await first], b"listens\n")]


async def _previous_run(context: AttackContext) -> list[str]:
    """More runs than there are networks, each with a child that still listens when its program ends."""
    found = []
    for _ in range(12):
        left = await context.connection.run(python_request(LEAVE_LISTENER))
        seen = await context.connection.run(python_request(REACH))
        found += [*_problems([left], b"listens\n"), *_problems([seen], NOT_REACHED)]
    later = await asyncio.gather(*(context.connection.run(python_request(REACH)) for _ in range(12)))
    return [*found, *_problems(later, NOT_REACHED)][:1]


def _problems(seen: Iterable[p.RunResponse], stdout: bytes) -> list[str]:
    return [str(each)[:200] for each in seen if not isinstance(each, p.RunFinished) or each.stdout != stdout]


SCENARIOS = (
    Scenario(170, "Unix socket of a concurrent run", "not reached", _concurrent_run, needs_unix_sockets=True),
    Scenario(171, "Unix socket of a previous run", "not reached", _previous_run, needs_unix_sockets=True),
)
