"""Bounds that an operator sets on programs, and validation of programs and file names against them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from jobyard.errors import BadInput
from jobyard.executors.sandbox.program import Program
from jobyard.sandbox.protocol import Limits

MAX_NAME_BYTES = 255  # of each path component, as in common file systems
MAX_PATH_BYTES = 1024
TOO_LONG = f"Must have at most {MAX_NAME_BYTES} bytes per component and {MAX_PATH_BYTES:,} in total."
MAX_ARGS = 256
MAX_ARGS_BYTES = 64 << 10
MAX_POINTS = 1_000_000
MAX_RUNS = 20
PAGE = 4096
# The program's folder, its temporary folder and the program itself.
OWN_INODES = 8
# Below these, no program of any language can start.
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

# Above these, every daemon rejects a run, whatever the operator allows.
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


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
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
    max_file_bytes: int = 1 << 20  # all files together
    max_batch: int = 100

    def most(self, limit: str) -> float:
        return float(getattr(self, "max_time_seconds" if limit == "cpu_seconds" else f"max_{limit}"))


class BoundsViolation(NamedTuple):
    where: tuple[str | int, ...]
    why: str


def check(program: Program, bounds: Bounds) -> None:
    for violation in violations(program, bounds):
        raise BadInput(f"{'.'.join(map(str, violation.where))}: {violation.why}")


def violations(program: Program, bounds: Bounds) -> Iterator[BoundsViolation]:
    if not program.source:
        yield BoundsViolation(("source",), "Must not be empty.")
    yield from _size(("source",), len(program.source.encode()), bounds.max_source_bytes)
    if not 1 <= len(program.inputs) <= bounds.max_batch:
        yield BoundsViolation(("inputs",), f"Must have 1 to {bounds.max_batch} items.")
    for number, data in enumerate(program.inputs):
        yield from _size(("inputs", number), len(data), bounds.max_input_bytes)
    yield from _limits(program.limits, bounds, ("limits",))
    yield from _judging(program, bounds)
    yield from _args(program.args)
    yield from _files(program, bounds)
    yield from names(program.collect, "collect", bounds.max_files)


def _size(where: tuple[str | int, ...], size: int, most: int) -> Iterator[BoundsViolation]:
    if size > most:
        yield BoundsViolation(where, f"Has {size:,} bytes; at most {most:,} are allowed.")


def _limits(limits: Limits, bounds: Bounds, where: tuple[str | int, ...]) -> Iterator[BoundsViolation]:
    for name, least in MINIMUMS.items():
        value, most = getattr(limits, name), bounds.most(name)
        if value is not None and not (math.isfinite(value) and least <= value <= most):
            yield BoundsViolation((*where, name), f"Must be a number from {least:g} to {most:.15g}.")


def _judging(program: Program, bounds: Bounds) -> Iterator[BoundsViolation]:
    if len(program.tests) > bounds.max_batch:
        yield BoundsViolation(("tests",), f"Must have at most {bounds.max_batch} items.")
    for number, case in enumerate(program.tests):
        yield from _size(("tests", number, "input"), len(case.stdin), bounds.max_input_bytes)
        yield from _size(("tests", number, "expected_output"), len(case.expected or b""), bounds.max_input_bytes)
        if case.limits is not None:
            yield from _limits(case.limits, bounds, ("tests", number, "limits"))
        if not (math.isfinite(case.points) and 0 <= case.points <= MAX_POINTS):
            yield BoundsViolation(("tests", number, "points"), f"Must be a number from 0 to {MAX_POINTS:,}.")
    yield from _size(("expected_output",), len(program.expected or b""), bounds.max_input_bytes)
    if not (math.isfinite(program.tolerance) and 0 <= program.tolerance <= 1):
        yield BoundsViolation(("tolerance",), "Must be a number from 0 to 1.")
    if not 1 <= program.runs <= MAX_RUNS:
        yield BoundsViolation(("runs",), f"Must be a number from 1 to {MAX_RUNS}.")
    if program.checker is not None:
        if not program.checker.source:
            yield BoundsViolation(("checker", "source_code"), "Must not be empty.")
        yield from _size(("checker", "source_code"), len(program.checker.source.encode()), bounds.max_source_bytes)
        yield from _limits(program.checker.limits, bounds, ("checker", "limits"))
    if len(program.compile_options) > MAX_ARGS:
        yield BoundsViolation(("compile", "options"), f"Must have at most {MAX_ARGS} items.")
    if program.interactive and (program.tests or program.is_batch or program.runs > 1):
        yield BoundsViolation(("interactive",), "Only a single run can be interactive.")


def _args(args: tuple[str, ...]) -> Iterator[BoundsViolation]:
    if len(args) > MAX_ARGS:
        yield BoundsViolation(("args",), f"Must have at most {MAX_ARGS} items.")
    for number, text in enumerate(args):
        if "\0" in text:
            yield BoundsViolation(("args", number), "Must not contain NUL.")
    yield from _size(("args",), sum(len(text.encode()) for text in args), MAX_ARGS_BYTES)


def _files(program: Program, bounds: Bounds) -> Iterator[BoundsViolation]:
    for violation in names(tuple(file.name for file in program.files), "files", bounds.max_files):
        where = (*violation.where, "name") if len(violation.where) > 1 else violation.where
        yield BoundsViolation(where, violation.why)
    yield from _size(("files",), sum(len(file.data) for file in program.files), bounds.max_file_bytes)
    sizes = [len(program.source.encode()), *(len(file.data) for file in program.files)]
    room, number = program.limits.disk_mb << 20, program.limits.disk_files
    if program.files and sum(map(_on_disk, sizes)) > room:
        yield BoundsViolation(
            ("files",), f"The files and the program exceed limits.disk_mb ({program.limits.disk_mb})."
        )
    if sum(1 + file.name.count("/") for file in program.files) + OWN_INODES > number:
        yield BoundsViolation(("files",), f"Too many files for limits.disk_files ({number}).")


def _on_disk(size: int) -> int:
    return -(-size // PAGE) * PAGE


def names(given: tuple[str, ...], what: str, most: int, own: tuple[str, ...] = ()) -> Iterator[BoundsViolation]:
    """Check each name, and that no two of them collide."""
    if len(given) > most:
        yield BoundsViolation((what,), f"Must have at most {most} items.")
        return
    seen: set[str] = set()
    # A name that is too long is rejected below: the folders of one with very many slashes would fill the memory.
    paths = [name.split("/") for name in given if len(name) <= MAX_PATH_BYTES]
    folders = {"/".join(parts[:end]) for parts in paths for end in range(1, len(parts))}
    for number, name in enumerate(given):
        why = file_name_problem(name)
        if why is None and name.partition("/")[0] in own:
            why = "This name is reserved for the program itself."
        elif why is None and name in seen:
            why = "This name appears twice."
        elif why is None and name in folders:
            why = "Another file uses this name as a folder."
        seen.add(name)
        if why is not None:
            yield BoundsViolation((what, number), why)


def file_name_problem(name: str) -> str | None:
    """Return why this is not a valid name for a file of the program, or None if it is valid.

    >>> file_name_problem("data/a.txt"), file_name_problem("../x"), file_name_problem("/etc/passwd")
    (None, 'Must not have empty, . or .. components.', "Must be relative to the program's folder.")
    """
    if not name:
        return "Must not be empty."
    if len(name) > MAX_PATH_BYTES:
        return TOO_LONG
    if name.startswith("/"):
        return "Must be relative to the program's folder."
    if any(part in ("", ".", "..") for part in name.split("/")):
        return "Must not have empty, . or .. components."
    if any(not character.isprintable() for character in name):
        return "Must consist of printable characters."
    if any(len(part.encode()) > MAX_NAME_BYTES for part in name.split("/")) or len(name.encode()) > MAX_PATH_BYTES:
        return TOO_LONG
    return None
