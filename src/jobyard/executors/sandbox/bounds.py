"""What may be asked of the sandbox: the operator's bounds, and names that may stand for files."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from jobyard.errors import BadInput
from jobyard.executors.sandbox.program import Program

MAX_NAME_BYTES = 255  # of each part, as file systems have it
MAX_PATH_BYTES = 1024
MAX_ARGS = 256
MAX_ARGS_BYTES = 64 << 10
PAGE = 4096
# The program's folder, its temporary one and the program itself.
OWN_INODES = 8
# Less than this no program of any language can start with.
MINIMUMS = {
    "time_seconds": 0.001,
    "cpu_seconds": 0.001,
    "memory_mb": 4,
    "processes": 1,
    "files_open": 16,
    "output_bytes": 1,
    "disk_mb": 1,
    "disk_files": 16,
}

# And more no daemon takes, whatever an operator allows.
MAXIMUMS = {
    "max_time_seconds": 86_400,
    "max_memory_mb": 1 << 20,
    "max_processes": 1024,
    "max_files_open": 4096,
    "max_output_bytes": 8 << 20,
    "max_disk_mb": 1 << 16,
    "max_disk_files": 1 << 20,
    "max_source_bytes": 8 << 20,
    "max_input_bytes": 16 << 20,
    "max_files": 1024,
    "max_file_bytes": 16 << 20,
    "max_batch": 10_000,
}
# What the program itself is called, where it lies in a file beside those that come with it.
OWN_FILES = {
    "python": ("main.py",),
    "bash": ("main.sh",),
    "javascript": ("main.js",),
    "c": ("main.c", "program"),
    "cpp": ("main.cpp", "program"),
}


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """The most that anybody may ask for."""

    max_time_seconds: float = 30.0
    max_memory_mb: int = 1024
    max_processes: int = 128
    max_files_open: int = 1024
    max_output_bytes: int = 1 << 20
    max_disk_mb: int = 256
    max_disk_files: int = 16_384
    max_source_bytes: int = 256 << 10
    max_input_bytes: int = 1 << 20
    max_files: int = 32
    max_file_bytes: int = 1 << 20  # of all files together
    max_batch: int = 100

    def most(self, limit: str) -> float:
        return float(getattr(self, "max_time_seconds" if limit == "cpu_seconds" else f"max_{limit}"))


class BoundsViolation(NamedTuple):
    """What is wrong with an order, and where that stands in it."""

    where: tuple[str | int, ...]
    why: str


def check(program: Program, bounds: Bounds) -> None:
    for wrong in violations(program, bounds):
        raise BadInput(f"{'.'.join(map(str, wrong.where))}: {wrong.why}")


def violations(program: Program, bounds: Bounds) -> Iterator[BoundsViolation]:
    if not program.source:
        yield BoundsViolation(("source",), "A program has at least one character.")
    yield from _size(("source",), len(program.source.encode()), bounds.max_source_bytes)
    if not 1 <= len(program.inputs) <= bounds.max_batch:
        yield BoundsViolation(("inputs",), f"From 1 to {bounds.max_batch} inputs are taken at once.")
    for number, data in enumerate(program.inputs):
        yield from _size(("inputs", number), len(data), bounds.max_input_bytes)
    yield from _limits(program, bounds)
    yield from _args(program.args)
    yield from _files(program, bounds)
    yield from names(program.collect, "collect", bounds.max_files)


def _size(where: tuple[str | int, ...], size: int, most: int) -> Iterator[BoundsViolation]:
    if size > most:
        yield BoundsViolation(where, f"{size:,} bytes; at most {most:,} are taken.")


def _limits(program: Program, bounds: Bounds) -> Iterator[BoundsViolation]:
    for name, least in MINIMUMS.items():
        value, most = getattr(program.limits, name), bounds.most(name)
        if value is not None and not (math.isfinite(value) and least <= value <= most):
            yield BoundsViolation(("limits", name), f"A number from {least:g} to {most:.15g} is taken.")


def _args(args: tuple[str, ...]) -> Iterator[BoundsViolation]:
    if len(args) > MAX_ARGS:
        yield BoundsViolation(("args",), f"At most {MAX_ARGS} are taken.")
    for number, text in enumerate(args):
        if "\0" in text:
            yield BoundsViolation(("args", number), "An argument cannot hold the character NUL.")
    yield from _size(("args",), sum(len(text.encode()) for text in args), MAX_ARGS_BYTES)


def _files(program: Program, bounds: Bounds) -> Iterator[BoundsViolation]:
    own = OWN_FILES.get(program.language, ())
    for wrong in names(tuple(file.name for file in program.files), "files", bounds.max_files, own):
        where = (*wrong.where, "name") if len(wrong.where) > 1 else wrong.where
        yield BoundsViolation(where, wrong.why)
    yield from _size(("files",), sum(len(file.data) for file in program.files), bounds.max_file_bytes)
    sizes = [len(program.source.encode()), *(len(file.data) for file in program.files)]
    room, number = program.limits.disk_mb << 20, program.limits.disk_files
    if program.files and sum(map(_on_disk, sizes)) > room:
        yield BoundsViolation(
            ("files",), f"They do not fit into limits.disk_mb ({program.limits.disk_mb}) with the program."
        )
    if sum(1 + file.name.count("/") for file in program.files) + OWN_INODES > number:
        yield BoundsViolation(("files",), f"They are too many for limits.disk_files ({number}).")


def _on_disk(size: int) -> int:
    return -(-size // PAGE) * PAGE


def names(given: tuple[str, ...], what: str, most: int, own: tuple[str, ...] = ()) -> Iterator[BoundsViolation]:
    """Each on its own, and all together: two cannot stand in the same place."""
    if len(given) > most:
        yield BoundsViolation((what,), f"At most {most} are taken.")
    seen: set[str] = set()
    folders = {"/".join(parts[:end]) for parts in (name.split("/") for name in given) for end in range(1, len(parts))}
    for number, name in enumerate(given):
        why = file_name_problem(name)
        if why is None and name.partition("/")[0] in own:
            why = "The program itself is called that."
        elif why is None and name in seen:
            why = "There are two of that name."
        elif why is None and name in folders:
            why = "Another one makes a folder of it."
        seen.add(name)
        if why is not None:
            yield BoundsViolation((what, number), why)


def file_name_problem(name: str) -> str | None:
    """Why a file below the program's folder cannot be called that; None if it can.

    >>> file_name("data/a.txt"), file_name("../x"), file_name("/etc/passwd")
    (None, 'A name has no part that is empty, . or ..', "A name is relative to the program's folder.")
    """
    if not name:
        return "A name is not empty."
    if name.startswith("/"):
        return "A name is relative to the program's folder."
    if any(part in ("", ".", "..") for part in name.split("/")):
        return "A name has no part that is empty, . or .."
    if any(not character.isprintable() for character in name):
        return "A name is made of printable characters."
    if any(len(part.encode()) > MAX_NAME_BYTES for part in name.split("/")) or len(name.encode()) > MAX_PATH_BYTES:
        return f"A name has at most {MAX_NAME_BYTES} bytes, with its folders {MAX_PATH_BYTES:,}."
    return None
