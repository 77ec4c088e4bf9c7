"""Installs the servers and the browser that are missing, when it may: `make test` calls it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers import github_descriptions
from tests.servers.absent import LANGUAGES, PACKAGES, find

# Asked by Debian's packages before they start what they install; 101 is "no".
POLICY = Path("/usr/sbin/policy-rc.d")


def main() -> int:
    install_packages([package for program, package in PACKAGES.items() if find(program) is None])
    # On their own: a machine whose packages lack one of these still gets the servers.
    install_packages([] if find("npm") else ["npm"])
    install_packages([package for path, package in LANGUAGES.items() if not Path(path).exists()])
    if github_descriptions.missing():
        github_descriptions.install()
    return 0  # the tests themselves say what a missing program means: a failure in CI, a skip elsewhere


def install_packages(missing: list[str]) -> None:
    if not missing:
        return
    words = f"apt-get install {' '.join(missing)}"
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        print(f"Some tests need programs that are not installed; to run them: {words}", file=sys.stderr)
        return
    print(f"Installing for the tests: {words}", flush=True)
    with nothing_starts():
        done = _apt("install", "--yes", "--no-install-recommends", *missing)
        if done.returncode != 0:
            _apt("update")
            done = _apt("install", "--yes", "--no-install-recommends", *missing)
    if done.returncode != 0:
        print(f"{words} failed; their tests cannot run:\n{done.stdout}{done.stderr}", file=sys.stderr)


@contextmanager
def nothing_starts() -> Iterator[None]:
    """We start our own servers; the machine's are its owner's business."""
    if POLICY.exists():
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()


def _apt(*words: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(
        ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=120", *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


if __name__ == "__main__":
    sys.exit(main())
