"""GitHub's own OpenAPI descriptions, fetched with npm into the virtual environment: `make servers` calls it."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from tests.servers.absent import Absent

VERSIONS = ("3.17", "3.18", "3.19")
REST, WEBHOOKS = "openapi", "openapi-webhooks"
PACKAGES = {REST: "@octokit/openapi@23.0.2", WEBHOOKS: "@octokit/openapi-webhooks@12.1.0"}
LONGEST_SECONDS = 300
FOLDER = Path(sys.prefix) / "github-descriptions"


class DescriptionsAbsent(Absent):
    """The descriptions are not here."""

    def __init__(self) -> None:
        Exception.__init__(self, "GitHub's OpenAPI descriptions are not installed. Install npm, then: make servers")
        self.program = "github-descriptions"


def path(package: str, version: str) -> Path:
    # The version of the package is in the name, so that a newer one is fetched when the pin changes.
    return FOLDER / f"{PACKAGES[package].rpartition('@')[2]}-{package}-ghes-{version}.json"


@functools.cache
def load(package: str, version: str) -> dict[str, Any]:
    try:
        described: dict[str, Any] = json.loads(path(package, version).read_bytes())
    except FileNotFoundError as error:
        raise DescriptionsAbsent from error
    return described


def missing() -> list[str]:
    return [name for name in PACKAGES if not all(path(name, version).exists() for version in VERSIONS)]


def install() -> None:
    """Fetch what is missing. A failure is reported only: the tests say what it means."""
    npm = shutil.which("npm")
    if npm is None:
        print(DescriptionsAbsent(), file=sys.stderr)
        return
    for name in missing():
        print(f"Fetching for the tests: {PACKAGES[name]}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            try:
                subprocess.run(
                    [npm, "pack", "--silent", PACKAGES[name]],
                    cwd=folder,
                    capture_output=True,
                    text=True,
                    check=True,
                    timeout=LONGEST_SECONDS,
                )
            except (subprocess.SubprocessError, OSError) as error:
                words = getattr(error, "stderr", None) or ""
                print(f"npm pack {PACKAGES[name]} failed: {error}\n{words}", file=sys.stderr)
                return
            [archive] = Path(folder).glob("*.tgz")
            _extract(name, archive)


def _extract(name: str, archive: Path) -> None:
    """Keep the plain descriptions of a few versions; all of them together are 400 MB."""
    FOLDER.mkdir(exist_ok=True)
    with tarfile.open(archive) as packed:
        for version in VERSIONS:
            content = packed.extractfile(f"package/generated/ghes-{version}.json")
            assert content is not None
            part = path(name, version).with_suffix(".part")
            part.write_bytes(content.read())
            part.replace(path(name, version))
