"""The daemon may be root: it imports nothing else of jobyard. Code inside imports only the standard library."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import jobyard.sandbox.daemon.inside as inside

ALLOWED = {"jobyard", "jobyard.sandbox", "jobyard.sandbox.protocol"}
DAEMON = "jobyard.sandbox.daemon"


def test_daemon_imports_nothing_else_of_jobyard() -> None:
    program = f"import json, sys, {DAEMON}.__main__; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    ours = {name for name in json.loads(done.stdout) if name.partition(".")[0] == "jobyard"}
    assert {name for name in ours if not name.startswith(DAEMON)} == ALLOWED


def test_inside_imports_only_the_standard_library() -> None:
    for path in Path(inside.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                top = name.partition(".")[0]
                assert top in sys.stdlib_module_names or name == f"{DAEMON}.inside", f"{path.name}: {name}"
