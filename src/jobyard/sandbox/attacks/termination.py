"""Attacks on termination: endless runs, unusual exits, processes that stay, floods of output."""

from __future__ import annotations

from jobyard.sandbox.attacks.attack import NO_FORK, SHORT, TIMED_OUT, Attack, Expected, Layer, with_attempt
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
        10, "flood stdout", FLOOD.format(fd=1), Expected(verdicts=(RunVerdict.OUTPUT_LIMIT,), stdout_bytes=64 << 10)
    ),
    Attack(
        11, "flood stderr", FLOOD.format(fd=2), Expected(verdicts=(RunVerdict.OUTPUT_LIMIT,), stderr_bytes=64 << 10)
    ),
    Attack(12, "endless loop", "while True:\n    pass\n", TIMED_OUT, limits=SHORT),
    Attack(
        13,
        "sleep past the time limit",
        "import time\nprint('kept', flush=True)\ntime.sleep(60)\n",
        Expected(verdicts=(RunVerdict.TIME_LIMIT,), stdout=b"kept\n"),
        limits=SHORT,
    ),
    Attack(
        14,
        "daemonize by double fork",
        with_attempt("""\
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
"""),
        Expected(prints=FORKED, in_ms=1500),
        tiers=MAY_FORK,
        without=FORKLESS,
    ),
    Attack(
        15,
        "a child that keeps stdout open",
        with_attempt("""\
import time
def fork():
    if os.fork() == 0:
        os.setsid()
        time.sleep(60)
    return "parent"

attempt("fork", fork)
"""),
        Expected(prints=FORKED, in_ms=1500),
        tiers=MAY_FORK,
        without=FORKLESS,
    ),
    Attack(
        16,
        "ignore every signal",
        """\
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
        TIMED_OUT,
        limits=SHORT,
    ),
    Attack(41, "1 MB of stdin never read", "print('done')\n", Expected(stdout=b"done\n", in_ms=2000), stdin=MEGABYTE),
    Attack(
        42,
        "1 MB of stdin read",
        """\
import sys
data = sys.stdin.buffer.read()
print(f"length: {len(data)}\\nsame: {data == bytes(range(256)) * 4096}")
""",
        Expected(prints={"length": str(1 << 20), "same": "True"}),
        stdin=MEGABYTE,
    ),
    Attack(
        51,
        "kill itself",
        "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n",
        Expected(verdicts=(RunVerdict.SIGNALED,), signal=9, exit_code=137),
    ),
    Attack(52, "stop itself", "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)\n", TIMED_OUT, limits=SHORT),
    Attack(
        53,
        "print to a closed stdout",
        "import os\nos.close(1)\nprint('lost')\n",
        Expected(verdicts=(RunVerdict.RUNTIME_ERROR,), stdout=b""),
    ),
    Attack(
        54,
        "a grandchild that writes after exit",
        with_attempt("""\
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
"""),
        Expected(prints=FORKED, stdout=b"fork: DONE parent\n"),
        tiers=MAY_FORK,
        without=FORKLESS,
    ),
    Attack(
        65,
        "sleep in an exit handler",
        "import atexit, time\natexit.register(time.sleep, 60)\nprint('main is done')\n",
        Expected(verdicts=(RunVerdict.TIME_LIMIT,), stdout=b"main is done\n"),
        limits=SHORT,
    ),
    Attack(
        66,
        "a thread that outlives main",
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()\n",
        TIMED_OUT,
        limits=SHORT,
    ),
    Attack(
        72,
        "close stdin while it is being sent",
        "import os, time\nos.close(0)\ntime.sleep(0.05)\nprint('done')\n",
        Expected(stdout=b"done\n"),
        stdin=MEGABYTE,
    ),
    Attack(
        73,
        "output of exactly the limit",
        "import os\nos.write(1, b'x' * 1000)\n",
        Expected(stdout=b"x" * 1000),
        limits=SMALL,
    ),
    Attack(
        74,
        "output one byte over the limit, then sleep",
        "import os, time\nos.write(1, b'x' * 1001)\ntime.sleep(60)\n",
        Expected(verdicts=(RunVerdict.OUTPUT_LIMIT,), stdout_bytes=1000, in_ms=2000),
        limits=SMALL,
    ),
    Attack(
        75,
        "output one byte over the limit, then exit",
        "import os\nos.write(1, b'x' * 1001)\n",
        Expected(verdicts=(RunVerdict.OUTPUT_LIMIT,), stdout_bytes=1000),
        limits=SMALL,
    ),
    Attack(
        76,
        "20,000 signals to itself",
        """\
import os, signal
signal.signal(signal.SIGUSR1, lambda *_: None)
for _ in range(20_000):
    os.kill(os.getpid(), signal.SIGUSR1)
print("done")
""",
        Expected(stdout=b"done\n"),
    ),
)
