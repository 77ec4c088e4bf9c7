"""Languages as data: read from YAML, checked, and only then believed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import yaml

_DEFAULT = Path(__file__).parent.parent / "languages.yaml"


class LanguageSelfTest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A program that must work before the language is offered."""

    source: str
    stdout: str
    stdin: str = ""


class CompileStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    command: tuple[str, ...]
    makes: str  # the file that is kept
    time_seconds: float = 15.0
    memory_mb: int = 512
    processes: int = 32
    disk_mb: int = 64


class LanguageDefinition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One language as the operator wrote it."""

    version: tuple[str, ...]  # prints the version, on either output
    file: str  # what the source is called in the program's folder
    self_test: LanguageSelfTest
    run: tuple[str, ...] = ()  # the command; args follow it
    start: tuple[str, ...] = ()  # started before the code is there; reads it from descriptor 3
    compile: CompileStep | None = None
    preload: tuple[str, ...] = ()  # modules of the Python kind, imported once by the zygote
    memory: str = "cgroup"  # or "address_space": can also be held by a limit of its address space
    pool: int = 0  # members kept warm
    processes: int = 0  # what the language's own runtime needs beside the program

    @property
    def kind(self) -> str:
        return "driver" if self.start else "exec" if self.run else "python"


class BadLanguages(Exception):
    """The file of languages cannot be used."""


def load(path: Path | None = None) -> dict[str, LanguageDefinition]:
    where = path or _DEFAULT
    try:
        data: Any = yaml.safe_load(where.read_text())
        return msgspec.convert(data, dict[str, LanguageDefinition], strict=False)
    except (OSError, yaml.YAMLError, msgspec.ValidationError) as error:
        raise BadLanguages(f"{where}: {error}") from error
