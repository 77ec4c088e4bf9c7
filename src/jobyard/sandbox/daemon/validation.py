"""Validation of run requests. The API applies its own bounds before; this rejects what cannot be run at all."""

from __future__ import annotations

import math

from jobyard.sandbox.protocol import Limits, RunRequest

_MAX_SECONDS = 86400.0
_BOUNDS = {
    "memory_mb": (4, 1 << 20),
    "processes": (1, 1024),
    "files_open": (8, 4096),
    "output_bytes": (1, 1 << 30),
    "disk_mb": (1, 1 << 16),
    "disk_files": (1, 1 << 20),
}
_MAX_NAME_BYTES = 255
_MAX_PATH_BYTES = 1024


def find_problem(request: RunRequest) -> str:
    """Return what is wrong with the request, or an empty string if it is valid."""
    return _limits(request.limits) or _files(request) or _arguments(request)


def _limits(limits: Limits) -> str:
    for name in ("time_seconds", "cpu_seconds"):
        value = getattr(limits, name)
        if value is not None and not (math.isfinite(value) and 0 < value <= _MAX_SECONDS):
            return f"limits.{name}: {value} is not between 0 and {_MAX_SECONDS:g}"
    for name, (least, most) in _BOUNDS.items():
        value = getattr(limits, name)
        if not least <= value <= most:
            return f"limits.{name}: {value} is not between {least} and {most}"
    return ""


def _files(request: RunRequest) -> str:
    seen: set[str] = set()
    for file in request.files:
        if why := file_name_error(file.name):
            return f"files: {file.name!r}: {why}"
        if file.name in seen:
            return f"files: {file.name!r} appears twice"
        seen.add(file.name)
    return ""


def file_name_error(name: str) -> str:
    """Return why this is not a valid name below the program's folder, or an empty string.

    >>> file_name_error("data/a.txt"), file_name_error("../a"), file_name_error("/a")
    ('', "component '..' is not allowed", "component '' is not allowed")
    """
    try:
        encoded = name.encode()
    except UnicodeEncodeError:
        return "not valid UTF-8"
    if "\0" in name:
        return "contains NUL"
    if len(encoded) > _MAX_PATH_BYTES:
        return f"longer than {_MAX_PATH_BYTES} bytes"
    for part in encoded.split(b"/"):
        if part in (b"", b".", b".."):
            return f"component {part.decode()!r} is not allowed"
        if len(part) > _MAX_NAME_BYTES:
            return f"a component is longer than {_MAX_NAME_BYTES} bytes"
    return ""


def _arguments(request: RunRequest) -> str:
    for argument in request.args:
        if "\0" in argument:
            return "args: an argument contains NUL"
        try:
            argument.encode()
        except UnicodeEncodeError:
            return "args: an argument is not valid UTF-8"
    return ""
