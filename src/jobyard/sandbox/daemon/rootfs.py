"""The root file system of programs, as a list of steps that build it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from jobyard.sandbox.daemon.inside.protocol import PROGRAM_FOLDER, USER

_DEVICES = ("null", "zero", "full", "random", "urandom")
_COVERED = ("/usr/local", "/usr/src", "/usr/lib/python3/dist-packages", "/usr/share/keyrings")
_USERS = "root:x:0:0::/:/usr/sbin/nologin\nnobody:x:65534:65534::/:/usr/sbin/nologin\n"
_GROUPS = "root:x:0:\nnogroup:x:65534:\n"
DRIVERS = "/drivers"

Step = list[str]
# Without the second, the C library also asks name servers.
_HOSTS: list[Step] = [
    ["file", "/etc/hosts", "127.0.0.1 localhost\n"],
    ["file", "/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"],
]


def steps(
    drivers: dict[str, str], uids: Iterable[int] = (), readable: Iterable[str] = (), *, has_loopback: bool = False
) -> list[Step]:
    """List [operation, target, source or content], in order; `drivers` maps file names to their text.

    A program has one of the user ids; it can read the `readable` paths of the host, besides /usr.
    """
    return [
        ["folder", PROGRAM_FOLDER, ""],
        # One writable folder under three names: one size limit covers all, and a box needs fewer mounts.
        ["link", "/tmp", PROGRAM_FOLDER],  # noqa: S108
        *_system(),
        *_etc(uids),
        *(_HOSTS if has_loopback else []),
        *(["bind" if Path(path).is_dir() else "bind_file", path, path] for path in readable),
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


def _etc(uids: Iterable[int]) -> list[Step]:
    # All ids have the same name: a program sees one user, and learns nothing from the name about others.
    own = sorted(set(uids))
    users = _USERS + "".join(f"{USER}:x:{uid}:{uid}::{PROGRAM_FOLDER}:/bin/sh\n" for uid in own)
    groups = _GROUPS + "".join(f"{USER}:x:{uid}:\n" for uid in own)
    found: list[Step] = [["folder", "/etc", ""], ["file", "/etc/passwd", users], ["file", "/etc/group", groups]]
    if Path("/etc/ld.so.cache").is_file():
        found.append(["bind_file", "/etc/ld.so.cache", "/etc/ld.so.cache"])
    choices = Path("/etc/alternatives")
    if choices.is_dir():
        found.append(["folder", str(choices), ""])
        links = [(str(link), os.readlink(link)) for link in sorted(choices.iterdir()) if link.is_symlink()]  # noqa: PTH115
        found += [["link", link, target] for link, target in links if target.startswith("/usr/")]
    return found
