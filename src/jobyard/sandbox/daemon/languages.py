"""Language definitions, read from YAML and validated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import yaml

_DEFAULT = Path(__file__).parent.parent / "languages.yaml"


class LanguageSelfTest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A program that must print this output before the language is offered."""

    source: str
    stdout: str
    stdin: str = ""


class CompileStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    command: tuple[str, ...]
    makes: str  # the output file
    time_seconds: float = 15.0
    memory_mb: int = 512
    processes: int = 32
    disk_mb: int = 64


class LanguageDefinition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: tuple[str, ...]  # a command that prints the version to stdout or stderr
    file: str  # name of the source in the program's folder
    self_test: LanguageSelfTest
    run: tuple[str, ...] = ()  # the command; the program's args are appended
    start: tuple[str, ...] = ()  # a driver that is started ahead and reads the code from descriptor 3
    compile: CompileStep | None = None
    preload: tuple[str, ...] = ()  # Python only: modules that the zygote imports once
    memory: str = "cgroup"  # or "address_space": its memory can also be limited by RLIMIT_AS
    pool: int = 0  # size of the warm pool
    processes: int = 0  # threads and processes of the language runtime itself

    @property
    def kind(self) -> str:
        return "driver" if self.start else "exec" if self.run else "python"


class BadLanguages(Exception):
    """The languages file is invalid."""


def load(path: Path | None = None) -> dict[str, LanguageDefinition]:
    where = path or _DEFAULT
    try:
        data: Any = yaml.safe_load(where.read_text())
        return msgspec.convert(data, dict[str, LanguageDefinition], strict=False)
    except (OSError, yaml.YAMLError, msgspec.ValidationError) as error:
        raise BadLanguages(f"Cannot read languages from {where}: {error}") from error
