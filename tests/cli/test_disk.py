"""A full disk and a read-only folder, on file systems of child processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support import ROOT

from jobyard import Jobyard


def private_mount_is_possible() -> bool:
    return subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode == 0


def play(scene: str, folder: Path, setup: str = "true") -> None:
    """Run the scene after a setup in a new mount namespace, so that no mount remains."""
    command = [sys.executable, "-W", "error", "-m", "tests.cli.disk", scene, str(folder)]
    if setup != "true":
        if not private_mount_is_possible():
            pytest.skip("needs a mount namespace (root, or unprivileged user namespaces)")
        command = ["unshare", "-rm", "sh", "-ec", f'{setup}\nexec "$@"', "sh", *command]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}", "FOLDER": str(folder)}
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stdout) == (0, "done\n"), result.stderr


def test_full_disk(tmp_path: Path) -> None:
    play("full", tmp_path, 'mount -t tmpfs -o size=3m none "$FOLDER"')


def test_full_disk_from_the_beginning(tmp_path: Path) -> None:
    play("no_room_to_begin", tmp_path, 'mount -t tmpfs -o size=1m none "$FOLDER"')


def test_limited_file_size(tmp_path: Path) -> None:
    play("file_size_limit", tmp_path)


def test_doctor_on_a_full_disk(tmp_path: Path) -> None:
    play("doctor", tmp_path, 'mount -t tmpfs -o size=8m none "$FOLDER"')


async def test_a_store_in_a_read_only_folder_is_reported_and_unchanged(tmp_path: Path) -> None:
    async with Jobyard(f"sqlite:///{tmp_path}/jobs.db"):
        pass
    before = (tmp_path / "jobs.db").read_bytes()
    play("read_only", tmp_path, 'mount --bind "$FOLDER" "$FOLDER" && mount -o remount,ro,bind "$FOLDER"')
    assert (tmp_path / "jobs.db").read_bytes() == before
