"""Modules of the interpreter's own tests, inside the sandbox: what fails there is explained in docs/sandbox.md."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.sandbox.machine_tiers import best_tier

from jobyard.sandbox.attacks.connection import DaemonConnection
from jobyard.sandbox.protocol import Limits, RunFinished, RunRequest, Tier

# Quick modules, with the tests that fail: sockets and other users.
MODULES: dict[str, set[str]] = {
    "test_getpass": set(),
    "test_glob": set(),
    "test_json": set(),
    "test_pathlib": {"test_is_socket_true"},
    "test_pwd": set(),
    "test_select": set(),
    "test_shutil": {"test_chown"},
    "test_tempfile": set(),
}
RUN = """
import os, sys, unittest
suite = unittest.defaultTestLoader.loadTestsFromName("test.{module}")
result = unittest.TextTestRunner(verbosity=0, stream=open("/dev/null", "w")).run(suite)
print("=", result.testsRun)
for case, _ in result.failures + result.errors:
    print("=", case._testMethodName if hasattr(case, "_testMethodName") else case)
"""
LIMITS = Limits(time_seconds=30, memory_mb=512, processes=64, files_open=256, disk_mb=64, output_bytes=1 << 20)
DOCUMENT = Path(__file__).parents[2] / "docs/sandbox.md"


@pytest.mark.parametrize("module", MODULES)
async def test_module(connection: DaemonConnection, module: str) -> None:
    if best_tier() is not Tier.A:
        pytest.skip("other tiers have fewer processes")
    if not list(Path("/usr/lib").glob(f"python3.*/test/{module}*")):
        pytest.skip("Debian's package of the interpreter's tests is not installed")
    request = RunRequest(id=0, language="python", source=RUN.format(module=module).encode(), limits=LIMITS)
    seen = await connection.run(request)
    assert isinstance(seen, RunFinished)
    count, *failed = [line[2:] for line in seen.stdout.decode().splitlines() if line.startswith("= ")] or ["0"]
    assert (seen.exit_code, int(count) > 0) == (0, True), seen
    assert set(failed) <= MODULES[module], failed


def test_every_known_failure_is_explained() -> None:
    text = DOCUMENT.read_text()
    assert [name for names in MODULES.values() for name in names if name not in text] == []
