"""What a run must look like before anything is done for it. The API has limits of its own; here is no nonsense."""

from __future__ import annotations

import math

from jobyard.sandbox.protocol import Limits, RunRequest

_SECONDS = 86400.0
_BOUNDS = {
    "memory_mb": (4, 1 << 20),
    "processes": (1, 1024),
    "files_open": (8, 4096),
    "output_bytes": (1, 1 << 30),
    "disk_mb": (1, 1 << 16),
    "disk_files": (1, 1 << 20),
}
_NAME_BYTES = 255
_PATH_BYTES = 1024


def problem(request: RunRequest) -> str:
    """What is wrong with it, in words; nothing when it can be run."""
    return _limits(request.limits) or _files(request) or _arguments(request)


def _limits(limits: Limits) -> str:
    for name in ("time_seconds", "cpu_seconds"):
        value = getattr(limits, name)
        if value is not None and not (math.isfinite(value) and 0 < value <= _SECONDS):
            return f"limits.{name}: {value} is not between 0 and {_SECONDS:g}"
    for name, (least, most) in _BOUNDS.items():
        value = getattr(limits, name)
        if not least <= value <= most:
            return f"limits.{name}: {value} is not between {least} and {most}"
    return ""


def _files(request: RunRequest) -> str:
    seen: set[str] = set()
    for file in request.files:
        if why := bad_name(file.name):
            return f"files: {file.name!r}: {why}"
        if file.name in seen:
            return f"files: {file.name!r} is there twice"
        seen.add(file.name)
    return ""


def bad_name(name: str) -> str:
    """Why this is no name below the program's folder.

    >>> bad_name("data/a.txt"), bad_name("../a"), bad_name("/a")
    ('', "it has a part '..'", "it has a part ''")
    """
    try:
        encoded = name.encode()
    except UnicodeEncodeError:
        return "it is not UTF-8"
    if "\0" in name:
        return "it holds a zero byte"
    if len(encoded) > _PATH_BYTES:
        return f"it is longer than {_PATH_BYTES} bytes"
    for part in encoded.split(b"/"):
        if part in (b"", b".", b".."):
            return f"it has a part {part.decode()!r}"
        if len(part) > _NAME_BYTES:
            return f"it has a part longer than {_NAME_BYTES} bytes"
    return ""


def _arguments(request: RunRequest) -> str:
    for argument in request.args:
        if "\0" in argument:
            return "args: one holds a zero byte"
        try:
            argument.encode()
        except UnicodeEncodeError:
            return "args: one is not UTF-8"
    return ""
