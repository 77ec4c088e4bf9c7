"""The root file system of programs, as a list of steps that build it."""

from __future__ import annotations

import os
from pathlib import Path

from jobyard.sandbox.daemon.inside.protocol import PROGRAM_FOLDER

_DEVICES = ("null", "zero", "full", "random", "urandom")
_COVERED = ("/usr/local", "/usr/src", "/usr/lib/python3/dist-packages", "/usr/share/keyrings")
_USERS = "root:x:0:0::/:/usr/sbin/nologin\nnobody:x:65534:65534::/:/usr/sbin/nologin\n"
_GROUP = "root:x:0:\nnogroup:x:65534:\n"
DRIVERS = "/drivers"

Step = list[str]


def steps(drivers: dict[str, str]) -> list[Step]:
    """List [operation, target, source or content], in order; `drivers` maps file names to their text."""
    return [
        ["folder", PROGRAM_FOLDER, ""],
        # One writable folder under three names: one size limit covers all, and a box needs fewer mounts.
        ["link", "/tmp", PROGRAM_FOLDER],  # noqa: S108
        *_system(),
        *_etc(),
        ["folder", DRIVERS, ""],
        *(["file", f"{DRIVERS}/{name}", text] for name, text in drivers.items()),
        ["folder", "/dev", ""],
        ["link", "/dev/shm", PROGRAM_FOLDER],  # noqa: S108
        *(["device", f"/dev/{name}", f"/dev/{name}"] for name in _DEVICES if Path(f"/dev/{name}").exists()),
        ["link", "/dev/fd", "/proc/self/fd"],
        *(
            ["link", f"/dev/{name}", f"/proc/self/fd/{number}"]
            for number, name in enumerate(("stdin", "stdout", "stderr"))
        ),
        ["proc", "/proc", ""],
    ]


def _system() -> list[Step]:
    found: list[Step] = [["bind", "/usr", "/usr"]]
    found += [["cover", path, ""] for path in _COVERED if Path(path).is_dir() and not Path(path).is_symlink()]
    for path in ("/bin", "/sbin", "/lib", "/lib64", "/lib32"):
        if Path(path).is_symlink():
            found.append(["link", path, os.readlink(path)])  # noqa: PTH115
        elif Path(path).is_dir():
            found.append(["bind", path, path])
    return found


def _etc() -> list[Step]:
    found: list[Step] = [["folder", "/etc", ""], ["file", "/etc/passwd", _USERS], ["file", "/etc/group", _GROUP]]
    if Path("/etc/ld.so.cache").is_file():
        found.append(["bind_file", "/etc/ld.so.cache", "/etc/ld.so.cache"])
    choices = Path("/etc/alternatives")
    if choices.is_dir():
        found.append(["folder", str(choices), ""])
        links = [(str(link), os.readlink(link)) for link in sorted(choices.iterdir()) if link.is_symlink()]  # noqa: PTH115
        found += [["link", link, target] for link, target in links if target.startswith("/usr/bin/")]
    return found
