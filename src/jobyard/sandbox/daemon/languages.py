"""Language definitions, read from YAML and validated."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from jobyard.sandbox.protocol import RunVerdict, option_matches

_DEFAULT = Path(__file__).parent.parent / "languages.yaml"


class LanguageSelfTest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A program that must print this output before the language is offered."""

    source: str
    stdout: str
    stdin: str = ""


class CompileStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    command: tuple[str, ...]  # "{options}" stands for the options of the request, "{units}" for all source files
    makes: str  # the output file
    time_seconds: float = 15.0
    memory_mb: int = 512
    max_time_seconds: float = 60.0  # the most that a request may set
    max_memory_mb: int = 1024
    processes: int = 32
    disk_mb: int = 64
    units: tuple[str, ...] = ()  # suffixes of the files of a request that are compiled, too
    options: tuple[str, ...] = ()  # that a request may pass; a final * stands for letters, digits and _=.+-

    def forbidden_option(self, options: tuple[str, ...]) -> str | None:
        """The first option that is not allowed."""
        return next(
            (option for option in options if not any(option_matches(option, each) for each in self.options)), None
        )


class OutOfMemory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a runtime with a memory limit of its own ends a program that reaches it."""

    exit_code: int
    stderr: str  # a pattern


class LanguageDefinition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: tuple[str, ...]  # a command that prints the version to stdout or stderr
    file: str  # name of the source in the program's folder
    self_test: LanguageSelfTest
    run: tuple[str, ...] = ()  # the command; the program's args are appended
    start: tuple[str, ...] = ()  # a driver that is started ahead and reads the code from descriptor 3
    compile: CompileStep | None = None
    crash: str = ""  # a pattern in stderr: the runtime prints it when it ends a program for an error not handled
    out_of_memory: OutOfMemory | None = None  # None: it has no limit of its own
    preload: tuple[str, ...] = ()  # Python only: modules that the zygote imports once
    memory: str = "cgroup"  # or "address_space": its memory can also be limited by RLIMIT_AS
    pool: int = 0  # size of the warm pool
    processes: int = 0  # threads and processes of the language runtime itself
    files_open: int = 0  # descriptors that it needs for itself
    extensions: tuple[str, ...] = ()  # of source files; `jobyard run` infers the language from them
    environment: dict[str, str] = {}  # of compiler and program, besides PATH, HOME, USER and LANG
    read_only: tuple[str, ...] = ()  # files and folders of the host, as patterns, that all programs can read
    python_path: tuple[str, ...] = ()  # Python only: folders to import packages from; readable like read_only
    example: str = ""  # for GET /languages: a program that prints "Hello, world!"
    slow_start: bool = False  # its self-test takes long: a daemon serves other languages before it ends

    def crash_report(self, exit_code: int, stderr: bytes) -> bytes:
        """What the pattern finds last, because the report of a runtime comes after all that the program printed."""
        if exit_code == 0 or not self.crash:
            return b""
        report = b""
        for found in re.finditer(self.crash.encode(), stderr, re.MULTILINE):
            report = found[0]
        return report

    def verdict_of(self, seen: RunVerdict, exit_code: int, stderr: bytes) -> RunVerdict:
        end = self.out_of_memory
        if seen is not RunVerdict.RUNTIME_ERROR or end is None or exit_code != end.exit_code:
            return seen
        is_found = re.search(end.stderr.encode(), stderr, re.MULTILINE) is not None
        return RunVerdict.MEMORY_LIMIT if is_found else seen

    @property
    def own_files(self) -> tuple[str, ...]:
        """Names in the program's folder that a request must not use for files of its own."""
        return (self.file,) if self.compile is None else (self.file, self.compile.makes)

    @property
    def kind(self) -> str:
        return "driver" if self.start else "exec" if self.run else "python"


# Below a top-level folder that belongs neither to programs nor to the kernel; /usr is readable anyway.
_READABLE = re.compile(r"/(?!(box|dev|proc|sys|run|tmp|usr|drivers)/)[^/]+/[^/].*")
_WHY_UNREADABLE = (
    "Name an absolute path with at least two folders, without .., such as /opt/course, that is not below /box, /dev, "
    "/proc, /sys, /run, /tmp or /drivers, which belong to programs and to the kernel, nor below /usr, which programs "
    "can read anyway except for installed Python packages"
)


class BadLanguages(Exception):
    """The languages file is invalid."""


def load(path: Path | None = None) -> dict[str, LanguageDefinition]:
    where = path or _DEFAULT
    try:
        import yaml  # noqa: PLC0415  # an extra: every command line imports this module
    except ModuleNotFoundError as error:
        raise BadLanguages(
            f"Cannot read languages from {where}: the Python package yaml is not installed. "
            "Run: pip install 'jobyard[sandbox]'"
        ) from error
    try:
        data: Any = yaml.safe_load(where.read_text())
    except (OSError, ValueError, yaml.YAMLError) as error:
        # In one line, as `jobyard sandbox status` shows the last line of a daemon that did not start.
        raise BadLanguages(f"Cannot read languages from {where}: {' '.join(str(error).split())}") from error
    if not isinstance(data, dict) or not data:
        raise BadLanguages(f"Cannot read languages from {where}: it must have at least one entry `name: …`.")
    found = {}
    for name, entry in data.items():
        try:
            found[str(name)] = _definition(entry)
        except (msgspec.ValidationError, ValueError) as error:
            raise BadLanguages(f"Cannot read languages from {where}: {name}: {error}.") from error
    return found


def _definition(entry: Any) -> LanguageDefinition:
    """Raises ValidationError, ValueError."""
    language = msgspec.convert(entry, LanguageDefinition, strict=False)
    end = language.out_of_memory
    for key, pattern in (("crash", language.crash), ("out_of_memory.stderr", "" if end is None else end.stderr)):
        try:
            re.compile(pattern.encode())
        except re.error as error:
            raise ValueError(f"{key}: {error}") from error
    for key, paths in (("read_only", language.read_only), ("python_path", language.python_path)):
        for shown in paths:
            if not _READABLE.fullmatch(shown) or ".." in shown.split("/"):
                raise ValueError(f"{key}: {shown} cannot be shown to programs. {_WHY_UNREADABLE}")
    return language


def readable_paths(languages: dict[str, LanguageDefinition]) -> list[str]:
    """What exists of the paths that the definitions name, for the root of all programs."""
    patterns = {path for language in languages.values() for path in (*language.read_only, *language.python_path)}
    return sorted({str(path) for pattern in patterns for path in Path("/").glob(pattern[1:])})
