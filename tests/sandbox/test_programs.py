"""The environment of programs, by language: as outside of a sandbox, except for the isolation."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.sandbox.machine_tiers import best_tier

from jobyard.sandbox.attacks.connection import DaemonConnection
from jobyard.sandbox.protocol import Fault, File, Limits, Output, RunFinished, RunRejected, RunRequest, RunVerdict, Tier

SLOW = Limits(time_seconds=30.0, memory_mb=256)


async def run(connection: DaemonConnection, source: str, language: str = "python", **rest: object) -> RunFinished:
    options = {"limits": SLOW, **rest}
    result = await connection.run(RunRequest(id=0, language=language, source=source.encode(), **options))  # type: ignore[arg-type]
    assert isinstance(result, RunFinished), result
    return result


async def needs(connection: DaemonConnection, language: str) -> None:
    state = await connection.fetch_state()
    if language not in {known.name for known in state.languages}:
        pytest.skip(f"{language} is not offered: {state.missing.get(language, 'unknown')}")


async def test_python_program_is_the_main_module(connection: DaemonConnection) -> None:
    seen = await run(connection, "import sys\nprint(__name__, __file__, sys.argv[1:])", args=("a b", "-c"))
    assert seen.stdout == b"__main__ /box/main.py ['a b', '-c']\n"
    assert (seen.verdict, seen.exit_code, seen.stderr) == (RunVerdict.OK, 0, b"")


async def test_traceback_has_frames_of_the_program_only(connection: DaemonConnection) -> None:
    seen = await run(connection, "def f():\n    return 1 / 0\nf()\n")
    lines = seen.stderr.decode().splitlines()
    assert [line for line in lines if "File" in line] == [
        '  File "/box/main.py", line 3, in <module>',
        '  File "/box/main.py", line 2, in f',
    ]
    assert lines[-1] == "ZeroDivisionError: division by zero"
    assert (seen.verdict, seen.exit_code) == (RunVerdict.RUNTIME_ERROR, 1)


async def test_syntax_error_is_a_runtime_error(connection: DaemonConnection) -> None:
    seen = await run(connection, "print('a'\n")
    assert seen.exit_code == 1
    assert b"SyntaxError" in seen.stderr
    assert b"main.py" in seen.stderr


@pytest.mark.parametrize(
    ("source", "code", "stderr"),
    [
        ("import sys; sys.exit(7)", 7, b""),
        ("import sys; sys.exit(300)", 44, b""),
        ("import sys; sys.exit('no more')", 1, b"no more\n"),
        ("raise SystemExit", 0, b""),
        ("exit(3)", 3, b""),
        ("import os; os._exit(5)", 5, b""),
    ],
)
async def test_exit_codes(connection: DaemonConnection, source: str, code: int, stderr: bytes) -> None:
    seen = await run(connection, source)
    assert (seen.exit_code, seen.signal, seen.stderr) == (code, None, stderr)


async def test_python_exit_runs_threads_handlers_and_finalizers(connection: DaemonConnection) -> None:
    """Threads are joined, exit handlers run, finalizers run, open files are flushed."""
    source = """
import atexit, threading, time
class Gone:
    def __del__(self): print("gone")
kept = Gone()
atexit.register(print, "at exit")
threading.Thread(target=lambda: (time.sleep(0.05), print("thread"))).start()
print("main", end="")
print()
"""
    assert (await run(connection, source)).stdout == b"main\nthread\nat exit\ngone\n"


async def test_custom_excepthook(connection: DaemonConnection) -> None:
    seen = await run(connection, "import sys\nsys.excepthook = lambda *error: print('mine', error[0].__name__)\n1 / 0")
    assert (seen.stdout, seen.exit_code) == (b"mine ZeroDivisionError\n", 1)


async def test_boxes_have_different_random_numbers(connection: DaemonConnection) -> None:
    source = "import random, uuid, os\nprint(random.random(), uuid.uuid4(), os.urandom(4).hex())"
    first, second = (await run(connection, source)).stdout.split(), (await run(connection, source)).stdout.split()
    assert all(one != other for one, other in zip(first, second, strict=True))


async def test_stdin_is_passed_completely(connection: DaemonConnection) -> None:
    seen = await run(connection, "import sys\nprint(input(), len(sys.stdin.read()))", stdin=b"first\n" + b"x" * 300_000)
    assert seen.stdout == b"first 300000\n"


async def test_streamed_output_is_also_in_the_result(connection: DaemonConnection) -> None:
    heard: list[Output] = []
    request = RunRequest(
        id=0, language="python", source=b"import sys\nprint('a')\nprint('b', file=sys.stderr)", stream=True, limits=SLOW
    )
    seen = await connection.run(request, heard.append)
    assert isinstance(seen, RunFinished)
    assert b"".join(output.data for output in heard if output.fd == 1) == seen.stdout == b"a\n"
    assert b"".join(output.data for output in heard if output.fd == 2) == seen.stderr == b"b\n"


async def test_output_before_a_timeout_is_kept(connection: DaemonConnection) -> None:
    seen = await run(connection, "print('kept')\nwhile True: pass", limits=Limits(time_seconds=3))
    assert (seen.verdict, seen.stdout, seen.exit_code, seen.signal) == (RunVerdict.TIME_LIMIT, b"kept\n", 137, 9)


async def test_cpu_limit_is_independent_of_the_time_limit(connection: DaemonConnection) -> None:
    seen = await run(connection, "while True: pass", limits=Limits(time_seconds=60.0, cpu_seconds=0.2))
    assert seen.verdict is RunVerdict.CPU_LIMIT
    assert seen.cpu_time_ms is not None
    assert 200 <= seen.cpu_time_ms < 400


async def test_input_and_output_files(connection: DaemonConnection) -> None:
    await needs_folder(connection)
    source = "data = open('in/a.txt').read()\nopen('out.txt', 'w').write(data * 2)\nprint(open('/tmp/out.txt').read())"
    files = (File(name="in/a.txt", data=b"ab"),)
    seen = await run(connection, source, files=files, collect=("out.txt", "none.txt", "in"))
    assert seen.stdout == b"abab\n"
    assert seen.files == (File(name="out.txt", data=b"abab"),)
    assert seen.notes == ("none.txt: No such file or directory", "in: not a regular file")


async def needs_folder(connection: DaemonConnection) -> None:
    result = await connection.run(
        RunRequest(id=0, language="python", source=b"", files=(File(name="a", data=b""),), limits=SLOW)
    )
    if isinstance(result, RunRejected) and result.fault is Fault.UNSUPPORTED:
        assert best_tier() is Tier.C
        pytest.skip(result.message)


async def test_links_are_not_collected(connection: DaemonConnection) -> None:
    await needs_folder(connection)
    source = """
import os
os.symlink("/etc/passwd", "link")
os.symlink("/", "root")
os.mkdir("folder")
open("folder/in", "w").write("x")
os.symlink("folder", "way")
open("none", "w").write("secret"); os.chmod("none", 0)
"""
    names = ("link", "root/etc/passwd", "way/in", "folder/in", "/etc/passwd", "../box/folder/in", "a\0b")
    seen = await run(connection, source, collect=names)
    assert seen.files == (File(name="folder/in", data=b"x"),)
    assert len(seen.notes) == len(names) - 1


async def test_bash_has_the_tools_of_the_host(connection: DaemonConnection) -> None:
    await needs(connection, "bash")
    seen = await run(
        connection,
        'read name; echo "hello $name" | tr a-z A-Z; echo "$1"; exit 3',
        "bash",
        stdin=b"you\n",
        args=("-x",),
    )
    assert (seen.stdout, seen.exit_code) == (b"HELLO YOU\n-x\n", 3)


async def test_javascript_is_the_main_module(connection: DaemonConnection) -> None:
    await needs(connection, "javascript")
    source = "console.log(require.main === module, process.argv.slice(2), __filename); process.exitCode = 4"
    seen = await run(connection, source, "javascript", args=("a",))
    assert (seen.stdout, seen.exit_code) == (b"true [ 'a' ] /box/main.js\n", 4)


async def test_javascript_error(connection: DaemonConnection) -> None:
    await needs(connection, "javascript")
    seen = await run(connection, "null.x", "javascript")
    assert seen.verdict is RunVerdict.RUNTIME_ERROR
    assert b"/box/main.js:1" in seen.stderr


async def test_standard_input_can_be_opened_by_name(connection: DaemonConnection) -> None:
    """The usual way to read it in JavaScript."""
    await needs(connection, "javascript")
    source = "const text = require('fs').readFileSync('/dev/stdin', 'utf8'); console.log(text.length, text)"
    assert (await run(connection, source, "javascript", stdin=b"a b\n")).stdout == b"4 a b\n\n"


async def test_sqlite_stores_in_a_file(connection: DaemonConnection) -> None:
    """It takes locks, which are not real."""
    await needs_folder(connection)
    source = """
import sqlite3
for number in (1, 2):
    with sqlite3.connect("data.db") as database:
        database.execute("create table if not exists t (n)")
        database.execute("insert into t values (?)", (number,))
print(sqlite3.connect("data.db").execute("select n from t").fetchall())
"""
    assert (await run(connection, source)).stdout == b"[(1,), (2,)]\n"


async def test_single_bytes_cost_few_messages(connection: DaemonConnection) -> None:
    """Each write is read at once while there are few, and several together when there are many."""
    heard: list[Output] = []
    source = b"import os\nfor _ in range(20_000):\n    os.write(1, b'x')\n    os.sched_yield()"
    request = RunRequest(id=0, language="python", source=source, stream=True, limits=SLOW)
    seen = await connection.run(request, heard.append)
    assert isinstance(seen, RunFinished)
    assert seen.stdout == b"".join(output.data for output in heard) == b"x" * 20_000
    assert len(heard) < 100 + seen.execution_time_ms


async def test_compiled_c_program_is_cached(connection: DaemonConnection) -> None:
    await needs(connection, "c")
    source = '#include <stdio.h>\n#include "n.h"\nint main(int c, char **v) { printf("%d %s\\n", N, v[1]); return c; }'
    files = (File(name="n.h", data=b"#define N 41\n"),)
    first = await run(connection, source, "c", files=files, args=("x",))
    second = await run(connection, source, "c", files=files, args=("y",))
    stranger = await run(connection, source, "c", files=files, args=("x",), scope="another client")
    other = await run(connection, source, "c", files=(File(name="n.h", data=b"#define N 42\n"),), args=("x",))
    assert first.compiled is not None
    assert second.compiled is not None
    assert other.compiled is not None
    assert stranger.compiled is not None
    assert [seen.stdout for seen in (first, second, other)] == [b"41 x\n", b"41 y\n", b"42 x\n"]
    assert [first.compiled.cached, second.compiled.cached, other.compiled.cached] == [False, True, False]
    assert second.compiled.time_ms < first.compiled.time_ms
    assert not stranger.compiled.cached


async def test_compile_error(connection: DaemonConnection) -> None:
    await needs(connection, "cpp")
    seen = await run(connection, "int main() { return x; }", "cpp")
    assert seen.verdict is RunVerdict.COMPILE_ERROR
    assert seen.compiled is not None
    assert b"'x' was not declared" in seen.compiled.stderr.replace(b"\xe2\x80\x98", b"'").replace(b"\xe2\x80\x99", b"'")
    assert (seen.stdout, seen.stderr) == (b"", b"")


async def test_unknown_language_is_rejected(connection: DaemonConnection) -> None:
    result = await connection.run(RunRequest(id=0, language="cobol", source=b""))
    assert isinstance(result, RunRejected)
    assert result.fault is Fault.UNKNOWN_LANGUAGE


async def test_installed_languages_are_offered(connection: DaemonConnection) -> None:
    """Other tests skip a language that is not offered; this one detects a broken one."""
    state = await connection.fetch_state()
    tools = {"python": "python3", "bash": "bash", "javascript": "node", "c": "gcc", "cpp": "g++"}
    installed = {name for name, tool in tools.items() if Path("/usr/bin", tool).exists()}
    if state.tier is Tier.A:
        assert installed <= {language.name for language in state.languages}, state.missing
    assert "python" in {language.name for language in state.languages}, state.missing
