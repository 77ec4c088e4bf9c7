"""Where the servers' programs and the browser are, and what to say when they are not."""

from __future__ import annotations

import shutil
from pathlib import Path

# Debian keeps PostgreSQL's own programs out of the path, one folder per version.
FOLDERS = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/sbin", "/usr/local/sbin")
PACKAGES = {
    "redis-server": "redis-server",
    "postgres": "postgresql",
    "pgbouncer": "pgbouncer",
    "chromium": "chromium",
    "curl": "curl",
    "jq": "jq",
    "promtool": "prometheus",
    # Languages of the sandbox; see also LANGUAGES.
    "lua5.4": "lua5.4",
    "php": "php-cli",
    "ruby": "ruby",
    "sqlite3": "sqlite3",
    "tsc": "node-typescript",
}

# Larger languages, and the tests of the interpreter: programs find them at these paths only, and without them, or
# without the disk space of 800 MB for all, their tests are skipped. Java is tested where it is installed.
LANGUAGES = {
    "/usr/bin/go": "golang-go",
    "/usr/bin/rustc": "rustc",
    "/usr/bin/Rscript": "r-base-core",
    "/usr/lib/python3.11/test/test_os.py": "libpython3.11-testsuite",
}


class Absent(Exception):
    """A program that tests need is not installed here."""

    def __init__(self, program: str) -> None:
        super().__init__(
            f"{program} is not installed. On Debian and Ubuntu: apt-get install {PACKAGES[program]} "
            "(`make test` does it when run as root)."
        )
        self.program = program


def find(program: str) -> Path | None:
    """
    >>> find("there-is-no-such-program") is None
    True
    """
    on_path = shutil.which(program)
    if on_path:
        return Path(on_path)
    for pattern in FOLDERS:
        found = sorted(Path("/").glob(f"{pattern[1:]}/{program}"), key=_version)
        if found:
            return found[-1]
    return None


def need(program: str) -> Path:
    found = find(program)
    if found is None:
        raise Absent(program)
    return found


def _version(path: Path) -> float:
    try:
        return float(path.parts[-3].removeprefix("pgsql-"))
    except ValueError:
        return 0.0
