"""Landlock rules for programs without a root of their own: read the interpreter's library, nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jobyard.sandbox.daemon.inside import kernel

_EXECUTE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 2, 1 << 3
_WRITE_FILE = 1 << 1
# Number of rights that each Landlock version knows; the kernel rejects a ruleset with unknown ones.
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
_NEWEST_FILES = 16
_NETWORK = 0b11  # TCP bind and connect
_SCOPES = 0b11  # abstract sockets and signals


def rules(readable: Iterable[str] = ()) -> dict[str, Any]:
    abi = kernel.landlock_abi()
    if abi < 1:
        raise OSError("this kernel has no Landlock")
    library = [path for path in ("/usr/lib", "/lib", "/lib64", "/usr/lib64") if Path(path).exists()]
    library += readable
    allow = [[path, _READ_FILE | _READ_DIR | _EXECUTE] for path in library]
    allow += [[path, _READ_FILE] for path in ("/dev/urandom", "/dev/random", "/dev/zero", "/etc/ld.so.cache")]
    allow += [["/dev/null", _READ_FILE | _WRITE_FILE]]
    return {
        "files": (1 << _FILE_RIGHTS.get(abi, _NEWEST_FILES)) - 1,
        "network": _NETWORK if abi >= 4 else 0,
        "scopes": _SCOPES if abi >= 6 else 0,
        "allow": [[path, rights] for path, rights in allow if Path(str(path)).exists()],
    }
