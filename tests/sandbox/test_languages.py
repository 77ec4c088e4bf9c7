"""Languages as data: every offered one works, versions side by side, packages of the operator, the ordinary things."""

from __future__ import annotations

import copy
import re
import tempfile
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.sandbox.machine_tiers import best_tier
from tests.support import eventually

from jobyard.sandbox.attacks.connection import DaemonConnection, connect
from jobyard.sandbox.attacks.private_daemon import private_daemon
from jobyard.sandbox.daemon.languages import BadLanguages, load
from jobyard.sandbox.protocol import Limits, RunFinished, RunRejected, RunRequest, RunVerdict, Tier

SLOW = Limits(time_seconds=30.0, memory_mb=512)
ONE_OF = {"-std=": "standard", "-ansi": "standard", "-O": "level", "-Werror": "level", "--edition": "edition"}
SPELLED_OUT = {
    "-D*": "-DN=1",
    "-U*": "-UN",
    "-Wno-*": "-Wno-unused",
    "-Copt-level=*": "-Copt-level=2",
    "-Coverflow-checks=*": "-Coverflow-checks=on",
}
DEFINITIONS: dict[str, Any] = yaml.safe_load(
    (Path(__file__).parents[2] / "src/jobyard/sandbox/languages.yaml").read_text()
)


async def checked(connection: DaemonConnection) -> dict[str, str]:
    """Why languages are missing, once every self-test has ended."""
    await eventually(lambda: _has_checked(connection), 60)
    return (await connection.fetch_state()).missing


async def _has_checked(connection: DaemonConnection) -> bool:
    return not (await connection.fetch_state()).checking


@pytest.mark.parametrize("name", sorted(DEFINITIONS))
async def test_example_of_every_language(connection: DaemonConnection, name: str) -> None:
    """A language whose tools are installed works; only a missing tool may keep it from being offered."""
    missing = await checked(connection)
    if name in missing and (missing[name].endswith("is not installed") or best_tier() is not Tier.A):
        pytest.skip(missing[name])
    assert name not in missing, missing[name]
    seen = await connection.run(RunRequest(id=0, language=name, source=load()[name].example.encode(), limits=SLOW))
    assert isinstance(seen, RunFinished), seen
    assert (seen.verdict, seen.stdout) == (RunVerdict.OK, b"Hello, world!\n"), seen


def combinations(options: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Few builds that use each option once: those of which a compiler takes one are in different builds."""
    groups: dict[str, list[str]] = {}
    for option in options:
        kind = next((kind for start, kind in ONE_OF.items() if option.startswith(start)), option)
        groups.setdefault(kind, []).append(SPELLED_OUT.get(option, option))
    return [tuple(filter(None, given)) for given in zip_longest(*groups.values())]


@pytest.mark.parametrize("name", sorted(name for name, each in DEFINITIONS.items() if "compile" in each))
async def test_every_allowed_option_works(connection: DaemonConnection, name: str) -> None:
    missing = await checked(connection)
    if name in missing:
        pytest.skip(missing[name])
    language = load()[name]
    assert language.compile is not None
    for given in combinations(language.compile.options):
        example = language.self_test
        request = RunRequest(
            id=0,
            language=name,
            source=example.source.encode(),
            stdin=example.stdin.encode(),
            limits=SLOW,
            compile_options=given,
        )
        seen = await connection.run(request)
        assert isinstance(seen, RunFinished), seen
        assert seen.stdout == example.stdout.encode(), (given, seen)
        assert seen.compiled is not None
        assert seen.compiled.stdout == b"", seen.compiled


async def run(connection: DaemonConnection, language: str, source: str, stdin: bytes = b"") -> bytes:
    request = RunRequest(id=0, language=language, source=source.encode(), stdin=stdin, limits=SLOW)
    seen = await connection.run(request)
    if isinstance(seen, RunRejected):
        pytest.skip(seen.message)
    assert isinstance(seen, RunFinished)
    assert seen.verdict is RunVerdict.OK, seen
    return seen.stdout


async def test_home_folder_and_user_name(connection: DaemonConnection) -> None:
    source = """
import getpass, os, pathlib
print(pathlib.Path.home(), getpass.getuser(), os.path.expanduser("~/a"))
"""
    assert await run(connection, "python", source) == b"/box box /box/a\n"
    if best_tier() is Tier.A:
        names = """
import os, pwd
print(pwd.getpwuid(os.getuid()).pw_name)
open("/dev/stdout", "a").write(open("/dev/stdin").read())
"""
        assert await run(connection, "python", names, b"in\n") == b"box\nin\n"
        assert await run(connection, "bash", "whoami; echo ~; cat /dev/stdin >&2; cat /dev/fd/0") == b"box\n/box\n"
        javascript = "const os = require('os'); console.log(os.homedir(), os.userInfo().username);"
        assert await run(connection, "javascript", javascript) == b"/box box\n"


async def test_home_folder_is_writable(connection: DaemonConnection) -> None:
    if best_tier() not in (Tier.A, Tier.B):
        pytest.skip("tier C has no folder")
    source = "import pathlib\nfile = pathlib.Path.home() / 'a'\nfile.write_text('x')\nprint(file.read_text())"
    assert await run(connection, "python", source) == b"x\n"


@pytest.fixture
def prefix() -> Iterator[Path]:
    """A folder that programs may be shown; those of pytest are below /tmp, which programs have for themselves."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="jobyard-packages-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


async def test_versions_side_by_side_and_packages_of_the_operator(tmp_path: Path, prefix: Path) -> None:
    """A second Python by its command, and a folder of packages that both programs and the warm interpreter import."""
    if best_tier() is not Tier.A:
        pytest.skip("needs root")
    (prefix / "greetings.py").write_text("TEXT = 'from the operator'\n")
    warm: dict[str, Any] = copy.deepcopy(DEFINITIONS["python"]) | {"python_path": [str(prefix)]}
    other = {
        "version": ["/usr/bin/python3", "--version"],
        "file": "main.py",
        "run": ["/usr/bin/python3", "-I", "main.py"],
        "self_test": {"source": "print(1)", "stdout": "1\n"},
    }
    absent = {**other, "version": ["/opt/none/bin/python3", "--version"]}
    file = tmp_path / "languages.yaml"
    file.write_text(yaml.safe_dump({"python": warm, "python-cold": other, "python-4": absent}))
    async with private_daemon(file=file, slots=1, pool=1) as own, connect(own.socket) as connection:
        state = await connection.ready()
        assert {each.name for each in state.languages} == {"python", "python-cold"}
        assert state.missing == {"python-4": "/opt/none/bin/python3 is not installed"}
        assert await run(connection, "python", "import greetings; print(greetings.TEXT)") == b"from the operator\n"
        assert await run(connection, "python-cold", "print(__name__)") == b"__main__\n"
        write = f"try:\n    open('{prefix}/x', 'w')\nexcept OSError as error:\n    print(error.strerror)"
        assert b"Read-only file system" in await run(connection, "python", write)
        seen = await connection.run(RunRequest(id=0, language="python-4", source=b"print(1)"))
        assert isinstance(seen, RunRejected)
        assert "is not installed" in seen.message


async def test_second_java_of_the_documentation(tmp_path: Path) -> None:
    """Its entry, word for word, with the Java of this machine."""
    if best_tier() is not Tier.A or not Path("/usr/bin/java").exists():
        pytest.skip("needs root and Java")
    document = (Path(__file__).parents[2] / "docs/howto/languages.md").read_text()
    text = document.split("```yaml\n")[1].split("```")[0].replace("/opt/jdk-25/bin/java", "/usr/bin/java")
    entry: dict[str, Any] = yaml.safe_load(text)["java-25"] | {"read_only": DEFINITIONS["java"]["read_only"]}
    file = tmp_path / "languages.yaml"
    file.write_text(yaml.safe_dump({"java-25": entry, "python": DEFINITIONS["python"]}))
    async with private_daemon(file=file, slots=1, pool=1) as own, connect(own.socket) as connection:
        assert await checked(connection) == {}
        assert await run(connection, "java-25", entry["example"]) == b"Hello, world!\n"


@pytest.mark.parametrize(
    "path", ["/", "/proc/1", "/dev/sda", "relative", "/opt/../etc/shadow", "/etc", "/box/x", "/run/x"]
)
def test_paths_that_no_language_may_show(tmp_path: Path, path: str) -> None:
    file = tmp_path / "languages.yaml"
    file.write_text(yaml.safe_dump({"bash": DEFINITIONS["bash"] | {"read_only": [path]}}))
    with pytest.raises(BadLanguages, match=re.escape(f"{file}: bash: read_only: {path} cannot be shown")) as found:
        load(file)
    assert "at least two folders" in str(found.value)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("bash: {rum: [/usr/bin/bash]}", "bash: Object contains unknown field `rum`"),
        ("bash: {version: [x], file: a, self_test: {source: a, stdout: b}, crash: '('}", "bash: crash: missing )"),
        (
            "bash: {version: [x], file: a, self_test: {source: a, stdout: b}, pool: many}",
            "bash: Expected `int`, got `str` - at `$.pool`",
        ),
        ("bash: [", "while parsing a flow node"),
        ("- bash", "it must have at least one entry"),
    ],
)
def test_mistakes_name_file_language_and_key(tmp_path: Path, text: str, named: str) -> None:
    file = tmp_path / "languages.yaml"
    file.write_text(text)
    with pytest.raises(BadLanguages) as found:
        load(file)
    assert str(file) in str(found.value) and named in str(found.value)
    assert "\n" not in str(found.value)


async def test_memory_of_java_is_a_limit_too(tmp_path: Path) -> None:
    """Its own limit ends it before that of its box: the verdict is the same, and an exit code alone is not enough."""
    if best_tier() is Tier.C or not Path("/usr/bin/java").exists():
        pytest.skip("needs Java")
    file = tmp_path / "languages.yaml"
    file.write_text(yaml.safe_dump({"java": DEFINITIONS["java"]}))
    source = "public class Main { public static void main(String[] a) { %s } }"
    fills = "java.util.List<long[]> all = new java.util.ArrayList<>(); while (true) all.add(new long[1 << 17]);"
    async with private_daemon(file=file, slots=1, pool=1) as own, connect(own.socket) as connection:
        assert await checked(connection) == {}
        for line, verdict in ((fills, RunVerdict.MEMORY_LIMIT), ("System.exit(3);", RunVerdict.RUNTIME_ERROR)):
            limits = Limits(time_seconds=20, memory_mb=128)
            request = RunRequest(id=0, language="java", source=(source % line).encode(), limits=limits)
            seen = await connection.run(request)
            assert isinstance(seen, RunFinished)
            assert (seen.verdict, seen.stdout) == (verdict, b""), seen
