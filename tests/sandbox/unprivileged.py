"""This Python as an unprivileged user, for tests that must also pass without root."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support import ROOT

USER = 64321  # an unused user id
# The interpreter may be in a folder that only root can enter: bind-mount it elsewhere, for this process tree only.
SHOW_AND_RUN = """
for name in python site src; do mkdir -p "$BASE/$name"; done
mount --bind "$PYTHON" "$BASE/python" || exit 97
mount --bind "$SITE" "$BASE/site" && mount --bind "$SRC" "$BASE/src" || exit 97
exec setpriv --reuid {user} --regid {user} --clear-groups --inh-caps=-all -- "$@"
"""


@dataclass(frozen=True, slots=True)
class UnprivilegedPython:
    command: tuple[str, ...]  # Python; arguments follow
    environment: dict[str, str]
    folder: Path  # owned by this user


def why_impossible() -> str | None:
    """Return why tests cannot run as an unprivileged user, or None."""
    if os.geteuid() != 0:
        return "these tests already run as an unprivileged user"
    missing = [name for name in ("unshare", "setpriv", "mount") if shutil.which(name) is None]
    return f"{', '.join(missing)} not installed" if missing else None


@contextmanager
def unprivileged_python() -> Iterator[UnprivilegedPython]:
    with tempfile.TemporaryDirectory(prefix="jobyard-unprivileged-") as temporary:
        base = Path(temporary)
        base.chmod(0o755)
        own = base / "own"
        own.mkdir(mode=0o700)
        os.chown(own, USER, USER)
        python = base / "python" / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
        script = SHOW_AND_RUN.format(user=USER)
        yield UnprivilegedPython(
            ("unshare", "--mount", "--propagation", "private", "--", "sh", "-c", script, "sh", str(python)),
            {
                "PATH": "/usr/bin:/bin:/usr/sbin:/sbin",
                "HOME": str(own),
                "TMPDIR": str(own),
                "PYTHONPATH": f"{base / 'site'}:{base / 'src'}",
                "PYTHONDONTWRITEBYTECODE": "1",
                "BASE": str(base),
                "PYTHON": sys.base_prefix,
                "SITE": sysconfig.get_path("purelib"),
                "SRC": str(ROOT / "src"),
            },
            own,
        )
