"""Builds the read-only root from a list of steps, and the Landlock ruleset where there is no own root."""

from __future__ import annotations

import os
from typing import Any

from jobyard.sandbox.daemon.inside import kernel

_BASE = "/tmp"  # any existing folder; it is mounted over in this namespace only  # noqa: S108
_QUIET = kernel.ATTR_NOSUID | kernel.ATTR_NODEV | kernel.ATTR_RDONLY


def build(steps: list[list[str]]) -> None:
    kernel.mount("", "/", "", kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount("tmpfs", _BASE, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=0755,size=4m")
    for what, target, argument in steps:
        _STEPS[what](_BASE + target, argument)
    kernel.restrict_mount(_BASE, _QUIET, recursive=False)
    kernel.enter_root(_BASE)


def _folder(target: str, _: str) -> None:
    os.makedirs(target, mode=0o755, exist_ok=True)


def _link(target: str, source: str) -> None:
    os.symlink(source, target)


def _file(target: str, text: str) -> None:
    with open(target, "w") as file:
        file.write(text)


def _bind(target: str, source: str) -> None:
    """Mount a folder of the host, readable and executable."""
    os.makedirs(target, mode=0o755, exist_ok=True)
    kernel.mount(source, target, "", kernel.MS_BIND | kernel.MS_REC)
    kernel.restrict_mount(target, _QUIET)


def _bind_file(target: str, source: str) -> None:
    os.makedirs(os.path.dirname(target), mode=0o755, exist_ok=True)
    os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    kernel.mount(source, target, "", kernel.MS_BIND)
    kernel.restrict_mount(target, _QUIET)


def _device(target: str, source: str) -> None:
    os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    kernel.mount(source, target, "", kernel.MS_BIND)
    # Read-only concerns the node: its data can be written, but its times are the host's, seen by every program.
    kernel.restrict_mount(target, kernel.ATTR_RDONLY | kernel.ATTR_NOSUID | kernel.ATTR_NOEXEC)


def _cover(target: str, _: str) -> None:
    """Hide the content of a folder."""
    kernel.mount("tmpfs", target, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_RDONLY, "mode=0755,size=4k")


def _proc(target: str, _: str) -> None:
    os.makedirs(target, exist_ok=True)
    kernel.mount("proc", target, "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)


_STEPS = {
    "folder": _folder,
    "link": _link,
    "file": _file,
    "bind": _bind,
    "bind_file": _bind_file,
    "device": _device,
    "cover": _cover,
    "proc": _proc,
}


def landlock(rules: dict[str, Any]) -> int:
    ruleset = kernel.landlock_ruleset(rules["files"], rules["network"], rules["scopes"])
    for path, rights in rules["allow"]:
        kernel.landlock_allow(ruleset, path, rights)
    return ruleset
