"""Remapping of the interpreter's code to huge pages."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from jobyard.sandbox.daemon.inside import huge_pages
from jobyard.sandbox.daemon.tier_runtime import INTERPRETER

MB = 1 << 20
FIXED = """\
00400000-0041f000 r--p 00000000 fe:00 1 /usr/bin/python3.11
0041f000-006d2000 r-xp 0001f000 fe:00 1 /usr/bin/python3.11
006d2000-00945000 r--p 002d2000 fe:00 1 /usr/bin/python3.11
00946000-00a85000 rw-p 00545000 fe:00 1 /usr/bin/python3.11
2778c000-27a36000 rw-p 00000000 00:00 0 [heap]
7f0244fde000-7f0245004000 r--p 00000000 fe:00 2 /usr/lib/libc.so.6
"""
MOVABLE = """\
55d0b5c61000-55d0b5cca000 r--p 00000000 fe:00 1 /usr/bin/python3.11
55d0b5cca000-55d0b6500000 r-xp 00069000 fe:00 1 /usr/bin/python3.11
55d0b6500000-55d0b6510000 rw-p 0089f000 fe:00 1 /usr/bin/python3.11
"""
SMALL = """\
55d0b5c61000-55d0b5c62000 r--p 00000000 fe:00 1 /usr/bin/python3.11
55d0b5c62000-55d0b5c63000 r-xp 00001000 fe:00 1 /usr/bin/python3.11
7f2244fde000-7f2245fde000 r-xp 00000000 fe:00 2 /usr/lib/libpython3.11.so
"""


@pytest.mark.parametrize(
    ("maps", "first", "size"),
    [(FIXED, 0x400000, 4 * MB), (MOVABLE, 0x55D0B5E00000, 6 * MB), (SMALL, 0x55D0B5E00000, 0), ("", 0, 0)],
    ids=["fixed", "movable", "small", "none"],
)
def test_find_code(maps: str, first: int, size: int) -> None:
    assert huge_pages._find_code(maps, "/usr/bin/python3.11") == (first, size)


@pytest.mark.skipif(not Path(INTERPRETER).exists(), reason=f"no {INTERPRETER}")
def test_interpreter_works_after_remapping() -> None:
    work = (
        "import json, os\n"
        "remap_code()\n"
        "first, size = _find_code(Path('/proc/self/maps').read_text(), os.path.realpath('/proc/self/exe'))\n"
        "assert json.loads(json.dumps({'a': [1.5, None]})) == {'a': [1.5, None]}\n"
        "try:\n    1 / 0\nexcept ZeroDivisionError:\n    pass\n"
        "child = os.fork()\n"
        "if child == 0:\n    os._exit(sum(range(8)))\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    program = Path(huge_pages.__file__).read_text() + work
    done = subprocess.run([INTERPRETER, "-I", "-S", "-"], input=program, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "28\n"), done.stderr
