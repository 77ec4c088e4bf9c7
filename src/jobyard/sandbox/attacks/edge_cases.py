"""Edge cases: unusual sources, output and exits, and what a program learns about its runner."""

from __future__ import annotations

from jobyard.sandbox.attacks.attack import Attack, Expected, with_attempt
from jobyard.sandbox.protocol import Limits, RunVerdict

RUNTIME_ERROR = (RunVerdict.RUNTIME_ERROR,)
# Only frames of the program, under a name that reveals nothing about the host.
TRACEBACK = (
    r"\ATraceback \(most recent call last\):\n"
    r"  File \"[\w./<>-]+\", line 4, in <module>\n(?:(?!  File).*\n)*"
    r"  File \"[\w./<>-]+\", line 2, in inner\n(?:(?!  File).*\n)*"
    r"KeyError: 'mine'\s*\Z"
)
WIDE = "\N{GREEK SMALL LETTER ALPHA}\N{EURO SIGN}\N{PILE OF POO}"

ATTACKS = (
    Attack(
        38,
        "abort with a core dump",
        "import os\nos.abort()\n",
        Expected(verdicts=(RunVerdict.SIGNALED,), signal=6, exit_code=134, files={}),
        collect=("core",),
    ),
    Attack(
        43,
        "output that is not UTF-8",
        "import os\nos.write(1, b'\\xff\\xfe\\x00ok\\n')\n",
        Expected(stdout=b"\xff\xfe\x00ok\n"),
    ),
    Attack(
        44,
        "NUL in the source",
        b"print('before')\0print('after')\n",
        Expected(verdicts=RUNTIME_ERROR, stderr="ValueError|SyntaxError|null bytes"),
    ),
    Attack(
        45,
        "10 MB of source",
        "text = '" + "x" * (10 << 20) + "'\nprint(f'length: {len(text)}')\n",
        Expected(prints={"length": str(10 << 20)}),
    ),
    Attack(
        46,
        "deep recursion",
        "def deeper():\n    deeper()\n\ndeeper()\n",
        Expected(verdicts=RUNTIME_ERROR, stderr="RecursionError"),
    ),
    Attack(
        47,
        "C stack overflow",
        """\
nest = ()
for _ in range(500_000):
    nest = (nest,)
hash(nest)
""",
        Expected(verdicts=(RunVerdict.SIGNALED,), signal=11),
        limits=Limits(time_seconds=10),
    ),
    Attack(
        48,
        "200,000 nested parentheses",
        "(" * 200_000 + ")" * 200_000 + "\n",
        Expected(verdicts=RUNTIME_ERROR, stderr="SyntaxError|MemoryError|RecursionError"),
    ),
    Attack(49, "sys.exit(300)", "import sys\nsys.exit(300)\n", Expected(verdicts=RUNTIME_ERROR, exit_code=44)),
    Attack(50, "os._exit(7)", "import os\nos._exit(7)\n", Expected(verdicts=RUNTIME_ERROR, exit_code=7)),
    Attack(
        55,
        "locale and time zone",
        """\
import sys, time
print(f"zone: {time.tzname[0]}")
print(f"encoding: {sys.stdout.encoding.lower()}")
""",
        Expected(prints={"zone": "UTC", "encoding": "utf-8"}),
    ),
    Attack(
        58,
        "walk up the stack frames",
        """\
import gc, sys
frame, kinds, count = sys._getframe().f_back, set(), 0
while frame is not None:
    count += 1
    kinds |= {type(value).__name__ for value in frame.f_locals.values()}
    frame = frame.f_back
print(f"frames: {count}")
print(f"held: {sorted(kinds - {'code', 'dict', 'int', 'NoneType', 'module', 'function', 'CompiledProgram'})}")
import socket
print(f"sockets: {len([each for each in gc.get_objects() if isinstance(each, socket.socket)])}")
print(f"globals: {[name for name in globals() if 'zygote' in name or 'jobyard' in name or 'box' in name]}")
print(f"jobyard: {any(name.startswith('jobyard') for name in sys.modules)}")
print(f"argv: {sys.argv}")
""",
        Expected(
            prints={
                "frames": "[012]",
                "held": r"\[\]",
                "sockets": "0",
                "globals": r"\[\]",
                "jobyard": "False",
                "argv": r"\['[\w./<>-]*'\]",
            }
        ),
    ),
    Attack(
        83,
        "runner details in a traceback",
        "def inner():\n    raise KeyError('mine')\n\ninner()\n",
        Expected(verdicts=RUNTIME_ERROR, exit_code=1, stderr=TRACEBACK),
    ),
    Attack(
        84,
        "multi-byte characters at the output limit",
        f"import sys\nsys.stdout.buffer.write({WIDE!r}.encode() * 200)\n",
        # The last character would have ended one byte past the limit.
        Expected(verdicts=(RunVerdict.OUTPUT_LIMIT,), stdout=(WIDE.encode() * 200)[:999]),
        limits=Limits(output_bytes=1000),
    ),
    Attack(
        85,
        "arguments that look like options",
        "import sys\nprint(f'words: {sys.argv[1:]}')\n",
        Expected(prints={"words": r"\['-c', '--bind', '--', '-', '', '; rm x', '\$\(id\)'\]"}),
        args=("-c", "--bind", "--", "-", "", "; rm x", "$(id)"),
    ),
    Attack(
        86,
        "modify the interpreter for the next run",
        with_attempt("""\
import json
json.loads = lambda text: "changed"
print(f"seen: {getattr(sys, 'jobyard_attack', None)}")
sys.jobyard_attack = "changed"
"""),
        Expected(prints={"seen": "None"}),
    ),
)
