"""This very Python as an ordinary user: for tests that root must not be the only one to pass."""

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

USER = 64321  # nobody else's
# The interpreter may live where only root can go: it is shown elsewhere, to this one process and its children.
SHOW_AND_RUN = """
for name in python site src; do mkdir -p "$PLACE/$name"; done
mount --bind "$PYTHON" "$PLACE/python" || exit 97
mount --bind "$SITE" "$PLACE/site" && mount --bind "$SRC" "$PLACE/src" || exit 97
exec setpriv --reuid {user} --regid {user} --clear-groups --inh-caps=-all -- "$@"
"""


@dataclass(frozen=True, slots=True)
class Ordinary:
    command: tuple[str, ...]  # Python, for arguments to follow
    environment: dict[str, str]
    folder: Path  # this user's own


def possible() -> str | None:
    """Why root cannot step down here, if it cannot."""
    if os.geteuid() != 0:
        return "these tests already run as an ordinary user"
    missing = [name for name in ("unshare", "setpriv", "mount") if shutil.which(name) is None]
    return f"{', '.join(missing)} not installed" if missing else None


@contextmanager
def ordinary() -> Iterator[Ordinary]:
    with tempfile.TemporaryDirectory(prefix="jobyard-ordinary-") as temporary:
        place = Path(temporary)
        place.chmod(0o755)
        own = place / "own"
        own.mkdir(mode=0o700)
        os.chown(own, USER, USER)
        python = place / "python" / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
        script = SHOW_AND_RUN.format(user=USER)
        yield Ordinary(
            ("unshare", "--mount", "--propagation", "private", "--", "sh", "-c", script, "sh", str(python)),
            {
                "PATH": "/usr/bin:/bin:/usr/sbin:/sbin",
                "HOME": str(own),
                "TMPDIR": str(own),
                "PYTHONPATH": f"{place / 'site'}:{place / 'src'}",
                "PYTHONDONTWRITEBYTECODE": "1",
                "PLACE": str(place),
                "PYTHON": sys.base_prefix,
                "SITE": sysconfig.get_path("purelib"),
                "SRC": str(ROOT / "src"),
            },
            own,
        )
