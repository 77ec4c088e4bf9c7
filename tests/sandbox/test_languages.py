"""Languages as data: every offered one works, versions side by side, packages of the operator, the ordinary things."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Iterator
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


@pytest.mark.parametrize(
    "path", ["/", "/proc/1", "/dev/sda", "relative", "/opt/../etc/shadow", "/etc", "/box/x", "/run/x"]
)
def test_paths_that_no_language_may_show(tmp_path: Path, path: str) -> None:
    file = tmp_path / "languages.yaml"
    file.write_text(yaml.safe_dump({"bash": DEFINITIONS["bash"] | {"read_only": [path]}}))
    with pytest.raises(BadLanguages):
        load(file)
