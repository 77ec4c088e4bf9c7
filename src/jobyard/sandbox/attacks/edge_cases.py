"""Edge cases: unusual sources, output and exits, and what a program learns about its runner."""

from __future__ import annotations

from jobyard.sandbox.attacks.attack import ATTEMPT, Attack, Expected
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
        number=38,
        name="abort with a core dump",
        program="import os\nos.abort()\n",
        expected=Expected(verdicts=(RunVerdict.SIGNALED,), signal=6, exit_code=134, files={}),
        collect=("core",),
    ),
    Attack(
        number=43,
        name="output that is not UTF-8",
        program="import os\nos.write(1, b'\\xff\\xfe\\x00ok\\n')\n",
        expected=Expected(stdout=b"\xff\xfe\x00ok\n"),
    ),
    Attack(
        number=44,
        name="NUL in the source",
        program=b"print('before')\0print('after')\n",
        expected=Expected(verdicts=RUNTIME_ERROR, stderr="ValueError|SyntaxError|null bytes"),
    ),
    Attack(
        number=45,
        name="10 MB of source",
        program="text = '" + "x" * (10 << 20) + "'\nprint(f'length: {len(text)}')\n",
        expected=Expected(prints={"length": str(10 << 20)}),
    ),
    Attack(
        number=46,
        name="deep recursion",
        program="def deeper():\n    deeper()\n\ndeeper()\n",
        expected=Expected(verdicts=RUNTIME_ERROR, stderr="RecursionError"),
    ),
    Attack(
        number=47,
        name="C stack overflow",
        limits=Limits(time_seconds=10),
        program="""\
nest = ()
for _ in range(500_000):
    nest = (nest,)
hash(nest)
""",
        expected=Expected(verdicts=(RunVerdict.SIGNALED,), signal=11),
    ),
    Attack(
        number=48,
        name="200,000 nested parentheses",
        program="(" * 200_000 + ")" * 200_000 + "\n",
        expected=Expected(verdicts=RUNTIME_ERROR, stderr="SyntaxError|MemoryError|RecursionError"),
    ),
    Attack(
        number=49,
        name="sys.exit(300)",
        program="import sys\nsys.exit(300)\n",
        expected=Expected(verdicts=RUNTIME_ERROR, exit_code=44),
    ),
    Attack(
        number=50,
        name="os._exit(7)",
        program="import os\nos._exit(7)\n",
        expected=Expected(verdicts=RUNTIME_ERROR, exit_code=7),
    ),
    Attack(
        number=55,
        name="locale and time zone",
        program="""\
import sys, time
print(f"zone: {time.tzname[0]}")
print(f"encoding: {sys.stdout.encoding.lower()}")
""",
        expected=Expected(prints={"zone": "UTC", "encoding": "utf-8"}),
    ),
    Attack(
        number=58,
        name="walk up the stack frames",
        program="""\
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
        expected=Expected(
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
        number=83,
        name="runner details in a traceback",
        program="def inner():\n    raise KeyError('mine')\n\ninner()\n",
        expected=Expected(verdicts=RUNTIME_ERROR, exit_code=1, stderr=TRACEBACK),
    ),
    Attack(
        number=84,
        name="multi-byte characters at the output limit",
        program=f"import sys\nsys.stdout.buffer.write({WIDE!r}.encode() * 200)\n",
        # The last character would have ended one byte past the limit.
        expected=Expected(verdicts=(RunVerdict.OUTPUT_LIMIT,), stdout=(WIDE.encode() * 200)[:999]),
        limits=Limits(output_bytes=1000),
    ),
    Attack(
        number=85,
        name="arguments that look like options",
        program="import sys\nprint(f'words: {sys.argv[1:]}')\n",
        expected=Expected(prints={"words": r"\['-c', '--bind', '--', '-', '', '; rm x', '\$\(id\)'\]"}),
        args=("-c", "--bind", "--", "-", "", "; rm x", "$(id)"),
    ),
    Attack(
        number=86,
        name="modify the interpreter for the next run",
        program=ATTEMPT
        + """\
import json
json.loads = lambda text: "changed"
print(f"seen: {getattr(sys, 'jobyard_attack', None)}")
sys.jobyard_attack = "changed"
""",
        expected=Expected(prints={"seen": "None"}),
    ),
)
