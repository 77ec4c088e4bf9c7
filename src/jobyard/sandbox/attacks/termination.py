"""Attacks on termination: endless runs, unusual exits, processes that stay, floods of output."""

from __future__ import annotations

from jobyard.sandbox.attacks.attack import ATTEMPT, NO_FORK, SHORT, TIMED_OUT, Attack, Expected, Layer
from jobyard.sandbox.protocol import Limits, RunVerdict, Tier

FORKED = {"fork": "DONE parent"}
FORKLESS = {Layer.NAMESPACES: (NO_FORK,)}
MAY_FORK = {Tier.B: (Expected(prints=FORKED, in_ms=1500), NO_FORK), Tier.C: (NO_FORK,)}
FLOOD = """\
import os
while True:
    os.write({fd}, b"x" * 5000)
"""
MEGABYTE = bytes(range(256)) * 4096
SMALL = Limits(output_bytes=1000)

ATTACKS = (
    Attack(
        number=10,
        name="flood stdout",
        program=FLOOD.format(fd=1),
        expected=Expected(verdicts=(RunVerdict.OUTPUT_LIMIT,), stdout_bytes=64 << 10),
    ),
    Attack(
        number=11,
        name="flood stderr",
        program=FLOOD.format(fd=2),
        expected=Expected(verdicts=(RunVerdict.OUTPUT_LIMIT,), stderr_bytes=64 << 10),
    ),
    Attack(number=12, name="endless loop", program="while True:\n    pass\n", expected=TIMED_OUT, limits=SHORT),
    Attack(
        number=13,
        name="sleep past the time limit",
        program="import time\nprint('kept', flush=True)\ntime.sleep(60)\n",
        expected=Expected(verdicts=(RunVerdict.TIME_LIMIT,), stdout=b"kept\n"),
        limits=SHORT,
    ),
    Attack(
        number=14,
        name="daemonize by double fork",
        program=ATTEMPT
        + """\
def fork():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for fd in (0, 1, 2):
                os.close(fd)
            while True:
                pass
        os._exit(0)
    return "parent"

attempt("fork", fork)
""",
        expected=Expected(prints=FORKED, in_ms=1500),
        tiers=MAY_FORK,
        without=FORKLESS,
    ),
    Attack(
        number=15,
        name="a child that keeps stdout open",
        program=ATTEMPT
        + """\
import time
def fork():
    if os.fork() == 0:
        os.setsid()
        time.sleep(60)
    return "parent"

attempt("fork", fork)
""",
        expected=Expected(prints=FORKED, in_ms=1500),
        tiers=MAY_FORK,
        without=FORKLESS,
    ),
    Attack(
        number=16,
        name="ignore every signal",
        program="""\
import signal, time
for number in signal.valid_signals():
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
try:
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
except OSError:
    pass
while True:
    time.sleep(60)
""",
        expected=TIMED_OUT,
        limits=SHORT,
    ),
    Attack(
        number=41,
        name="1 MB of stdin never read",
        program="print('done')\n",
        expected=Expected(stdout=b"done\n", in_ms=2000),
        stdin=MEGABYTE,
    ),
    Attack(
        number=42,
        name="1 MB of stdin read",
        program="""\
import sys
data = sys.stdin.buffer.read()
print(f"length: {len(data)}\\nsame: {data == bytes(range(256)) * 4096}")
""",
        expected=Expected(prints={"length": str(1 << 20), "same": "True"}),
        stdin=MEGABYTE,
    ),
    Attack(
        number=51,
        name="kill itself",
        program="import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n",
        expected=Expected(verdicts=(RunVerdict.SIGNALED,), signal=9, exit_code=137),
    ),
    Attack(
        number=52,
        name="stop itself",
        program="import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)\n",
        expected=TIMED_OUT,
        limits=SHORT,
    ),
    Attack(
        number=53,
        name="print to a closed stdout",
        program="import os\nos.close(1)\nprint('lost')\n",
        expected=Expected(verdicts=(RunVerdict.RUNTIME_ERROR,), stdout=b""),
    ),
    Attack(
        number=54,
        name="a grandchild that writes after exit",
        program=ATTEMPT
        + """\
import time
def fork():
    if os.fork() == 0:
        if os.fork() == 0:
            time.sleep(0.2)
            print("late: ESCAPED", flush=True)
            os._exit(0)
        os._exit(0)
    os.wait()
    return "parent"

attempt("fork", fork)
""",
        expected=Expected(prints=FORKED, stdout=b"fork: DONE parent\n"),
        tiers=MAY_FORK,
        without=FORKLESS,
    ),
    Attack(
        number=65,
        name="sleep in an exit handler",
        program="import atexit, time\natexit.register(time.sleep, 60)\nprint('main is done')\n",
        expected=Expected(verdicts=(RunVerdict.TIME_LIMIT,), stdout=b"main is done\n"),
        limits=SHORT,
    ),
    Attack(
        number=66,
        name="a thread that outlives main",
        program="import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()\n",
        expected=TIMED_OUT,
        limits=SHORT,
    ),
    Attack(
        number=72,
        name="close stdin while it is being sent",
        program="import os, time\nos.close(0)\ntime.sleep(0.05)\nprint('done')\n",
        expected=Expected(stdout=b"done\n"),
        stdin=MEGABYTE,
    ),
    Attack(
        number=73,
        name="output of exactly the limit",
        program="import os\nos.write(1, b'x' * 1000)\n",
        expected=Expected(stdout=b"x" * 1000),
        limits=SMALL,
    ),
    Attack(
        number=74,
        name="output one byte over the limit, then sleep",
        program="import os, time\nos.write(1, b'x' * 1001)\ntime.sleep(60)\n",
        expected=Expected(verdicts=(RunVerdict.OUTPUT_LIMIT,), stdout_bytes=1000, in_ms=2000),
        limits=SMALL,
    ),
    Attack(
        number=75,
        name="output one byte over the limit, then exit",
        program="import os\nos.write(1, b'x' * 1001)\n",
        expected=Expected(verdicts=(RunVerdict.OUTPUT_LIMIT,), stdout_bytes=1000),
        limits=SMALL,
    ),
    Attack(
        number=76,
        name="20,000 signals to itself",
        program="""\
import os, signal
signal.signal(signal.SIGUSR1, lambda *_: None)
for _ in range(20_000):
    os.kill(os.getpid(), signal.SIGUSR1)
print("done")
""",
        expected=Expected(stdout=b"done\n"),
    ),
)
