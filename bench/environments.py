"""Every peer in an environment of its own, built on first use: their needs contradict each other."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
PINS = HERE / "peers.toml"
FOLDER = HERE.parent / ".bench"
LONGEST_BUILD_SECONDS = 600


class CannotBuild(Exception):
    """One peer's environment is not available here: only its rows are missing."""


@dataclass(frozen=True, slots=True)
class Environment:
    name: str
    packages: tuple[str, ...] = ()
    npm: tuple[str, ...] = ()
    python: str = ""  # the oldest that will do, when ours may not
    program: str = ""  # not ours to build: of the system's own packages, installed when root asks for it

    @property
    def folder(self) -> Path:
        return FOLDER / self.name

    @property
    def version(self) -> str:
        """
        >>> Environment("a", packages=("a==1.2", "b==3")).version, Environment("b", npm=("b@4.5",)).version
        ('1.2', '4.5')
        """
        if self.program:
            return _version(self.program)
        return self.packages[0].partition("==")[2] if self.packages else self.npm[0].rpartition("@")[2]

    @property
    def interpreter(self) -> Path:
        return Path("node") if self.npm else self.folder / "bin" / "python"

    @property
    def is_built(self) -> bool:
        """As the pins are now: others mean that it is built anew."""
        return self._stamp.is_file() and self._stamp.read_text() == self._pins

    def build(self) -> None:
        if self.program:
            _install(self.program, self.packages)
            return
        if self.is_built:
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        if self.npm:
            self._build_for_node()
        else:
            _run(_python(self.python), "-m", "venv", str(self.folder))
            _run(str(self.interpreter), "-m", "pip", "install", "--quiet", *self.packages)
        self._stamp.write_text(self._pins)

    def _build_for_node(self) -> None:
        for program in ("node", "npm"):
            if shutil.which(program) is None:
                raise CannotBuild(f"{program} is missing")
        (self.folder / "package.json").write_text(json.dumps({"private": True}))
        _run("npm", "install", "--prefix", str(self.folder), "--no-audit", "--no-fund", "--silent", *self.npm)

    @property
    def _stamp(self) -> Path:
        return self.folder / "pins"

    @property
    def _pins(self) -> str:
        return "\n".join([self.python, *self.packages, *self.npm])


@functools.cache
def environments() -> dict[str, Environment]:
    pins = tomllib.loads(PINS.read_text(encoding="utf-8"))
    return {
        name: Environment(
            name,
            tuple(entry.get("packages", ())),
            tuple(entry.get("npm", ())),
            entry.get("python", ""),
            entry.get("program", ""),
        )
        for name, entry in pins.items()
    }


def _run(*words: str) -> None:
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=LONGEST_BUILD_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotBuild(str(error)) from error
    if done.returncode != 0:
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines() or [f"exit code {done.returncode}"]
        raise CannotBuild(next((line for line in reversed(lines) if "error" in line.lower()), lines[-1]))


def _install(program: str, packages: tuple[str, ...]) -> None:
    if shutil.which(program) is not None:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise CannotBuild(f"{program} is not installed: apt-get install {' '.join(packages)}")
    _run("apt-get", "install", "--yes", "--no-install-recommends", *packages)


def _version(program: str) -> str:
    """
    >>> _version("there-is-no-such-program")
    ''
    """
    if shutil.which(program) is None:
        return ""
    return subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout.split()[-1]


def _python(oldest: str) -> str:
    """Ours if it will do, else the first newer one on the path or beside ours."""
    if not oldest or sys.version_info[:2] >= _pair(oldest):
        return sys.executable
    for candidate in _candidates(_pair(oldest)[1]):
        words = [candidate, "-c", f"import sys, venv; sys.exit(sys.version_info[:2] < {_pair(oldest)})"]
        try:
            if subprocess.run(words, capture_output=True, timeout=20, check=False).returncode == 0:
                return candidate
        except (OSError, subprocess.TimeoutExpired):
            continue
    raise CannotBuild(f"needs Python {oldest} or newer, which is not here")


def _candidates(minor: int) -> Iterator[str]:
    for number in range(minor, minor + 4):
        yield f"python3.{number}"
    # Version managers keep the others as siblings of the folder that holds ours.
    for sibling in sorted(Path(sys.base_prefix).parent.glob("*/bin/python3"), reverse=True):
        yield str(sibling)


def _pair(version: str) -> tuple[int, int]:
    major, _, minor = version.partition(".")
    return int(major), int(minor)
