"""Builds of several files, options and limits of compilers, and options that would read what they must not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.sandbox.real_programs import Judge, judge

from jobyard.sandbox.attacks.connection import DaemonConnection
from jobyard.sandbox.attacks.private_daemon import PrivateDaemon
from jobyard.sandbox.protocol import File, Limits, RunFinished, RunRejected, RunRequest, RunVerdict

# Of wall-clock time, which a busy machine uses up sooner.
LIMITS = Limits(time_seconds=30)
UNITS = [
    {"name": "area.h", "content": "int area(int a);\n"},
    {"name": "lib/area.c", "content": '#include "../area.h"\nint area(int a) { return a * a; }\n'},
]
MAIN = '#include <stdio.h>\n#include "area.h"\nint main(void) { printf("%d %d\\n", area(3), N); }\n'


@pytest.fixture
async def here(daemon: PrivateDaemon) -> AsyncIterator[Judge]:
    async with judge(daemon) as made:
        yield made


async def test_all_units_are_compiled(here: Judge) -> None:
    await here.needs("c")
    found = await here.result(MAIN, "c", files=UNITS, compile={"options": ["-DN=7", "-O0", "-std=c11"]})
    assert (found["verdict"], found["stdout"]) == ("OK", "9 7\n"), found
    broken = [*UNITS, {"name": "other.c", "content": "int other(void) { return missing; }"}]
    found = await here.result(MAIN, "c", files=broken, compile={"options": ["-DN=7"]})
    assert found["verdict"] == "COMPILE_ERROR"
    assert "other.c" in found["compile"]["stderr"]


async def test_units_of_cpp(here: Judge) -> None:
    await here.needs("cpp")
    files = [{"name": "area.cc", "content": "int area(int a) { return a * a; }\n"}]
    main = '#include <cstdio>\nint area(int);\nint main() { std::printf("%d\\n", area(4)); }'
    assert (await here.result(main, "cpp", files=files))["stdout"] == "16\n"


FORBIDDEN = [
    "-include/etc/shadow", "-include", "/etc/shadow", "@/etc/shadow", "@options", "-wrapper", "sh,-c,id", "-I/etc",
    "-fplugin=x.so", "-B/box", "-specs=x", "-Wl,-rpath=/x", "-Wa,--version", "-Xlinker", "-o", "-o/tmp/x", "-x",
    "-save-temps", "-dumpdir", "-imacros", "--sysroot=/", "-DX=/etc/shadow", "-DX=\"a b\"", "-DX\n", "", " -O2",
    "-O2 -I/etc", "main.c", "-E", "-S", "-", "-Wno-x,y", "-march=x", "-std=c17/x",
]  # fmt: skip


@pytest.mark.parametrize("option", FORBIDDEN)
async def test_forbidden_options_are_rejected_twice(here: Judge, connection: DaemonConnection, option: str) -> None:
    """By the API with the field, and by the daemon, which does not trust its clients with this."""
    await here.needs("c")
    response = await here.submit("int main(void) { return 0; }", "c", compile={"options": ["-O2", option]})
    assert (response.status_code, response.json()["errors"][0]["pointer"]) == (422, "/compile/options/1")
    request = RunRequest(
        id=0, language="c", source=b"int main(void) { return 0; }", compile_options=("-O2", option), limits=LIMITS
    )
    seen = await connection.run(request)
    assert isinstance(seen, RunRejected)
    assert not seen.may_have_run


@pytest.mark.parametrize("name", ["-wrapper.c", "@x.c", "-o.c", "a b.c", "-include.c"])
async def test_names_of_units_are_never_options(here: Judge, name: str) -> None:
    await here.needs("c")
    found = await here.result(
        "int three(void);\nint main(void) { return three() - 3; }",
        "c",
        files=[{"name": name, "content": "int three(void) { return 3; }"}],
    )
    assert found["verdict"] == "OK", found


@pytest.mark.parametrize("name", ["../x.c", "/etc/x.c", "a/../../x.c", "a//x.c", "x.c\0", "./x.c", "main.c", "program"])
async def test_names_of_units_stay_below_the_folder(here: Judge, connection: DaemonConnection, name: str) -> None:
    await here.needs("c")
    response = await here.submit("int main(void) { return 0; }", "c", files=[{"name": name, "content": ""}])
    assert (response.status_code, response.json()["errors"][0]["pointer"]) == (422, "/files/0/name")
    files = (File(name=name, data=b""),)
    seen = await connection.run(
        RunRequest(id=0, language="c", source=b"int main(void) { return 0; }", files=files, limits=LIMITS)
    )
    assert isinstance(seen, RunRejected) or name == "./x.c", seen


async def test_limits_of_the_compiler(here: Judge) -> None:
    await here.needs("c")
    slow = "\n".join(["#define A(x) x x x x x x x x x x", "#define B(x) A(A(A(A(x))))",
                      "int main(void) { int n = 0; B(B(n++;)) return 0; }"])  # fmt: skip
    found = await here.result(slow, "c", compile={"time_seconds": 0.2, "memory_mb": 200})
    assert found["verdict"] == "COMPILE_ERROR"
    assert "killed" in found["compile"]["stderr"]
    for name, value in (("memory_mb", 0), ("memory_mb", 5000), ("time_seconds", 61)):
        refused = await here.submit("int main(void) { return 0; }", "c", compile={name: value})
        assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, f"/compile/{name}"), refused.text


@pytest.mark.parametrize("included", ["/etc/shadow", "/proc/1/environ", "/box/../etc/shadow"])
async def test_sources_include_nothing_of_the_host(here: Judge, included: str) -> None:
    await here.needs("c")
    found = await here.result(f'#include "{included}"\nint main(void) {{ return 0; }}', "c")
    assert found["verdict"] == "COMPILE_ERROR"
    assert "No such file" in found["compile"]["stderr"] or "Permission denied" in found["compile"]["stderr"]


async def test_second_build_is_taken_from_the_cache(connection: DaemonConnection) -> None:
    request = RunRequest(id=0, language="c", source=b"int main(void) { return 0; }", limits=LIMITS, scope="cached")
    for is_cached in (False, True):
        seen = await connection.run(request)
        if isinstance(seen, RunRejected):
            pytest.skip(seen.message)
        assert isinstance(seen, RunFinished)
        assert seen.compiled is not None
        assert (seen.verdict, seen.compiled.cached) == (RunVerdict.OK, is_cached)
        assert not is_cached or seen.compiled.time_ms < 5.0  # a look into a table, without any waiting


async def test_merged_stderr_keeps_the_order(here: Judge) -> None:
    sources: dict[str, str] = {
        "python": "import sys\nfor n in range(3):\n    print(n)\n    print(-n, file=sys.stderr)\n",
        "bash": "for n in 0 1 2; do echo $n; echo -$n >&2; done",
        "javascript": "for (const n of [0, 1, 2]) { console.log(n); console.error(-n || '-0'); }",
    }
    for language, source in sources.items():
        await here.needs(language)
        found: dict[str, Any] = await here.result(source, language, merge_stderr=True)
        words = found["stdout"].replace("-0", "0").split()
        assert (words, found["stderr"]) == (["0", "0", "1", "-1", "2", "-2"], ""), language
