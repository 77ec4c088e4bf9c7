"""The daemon may be root: it loads nothing of the queue, and what runs inside loads nothing of ours at all."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import jobyard.sandbox.daemon.inside as inside

ALLOWED = {"jobyard", "jobyard.sandbox", "jobyard.sandbox.protocol"}
DAEMON = "jobyard.sandbox.daemon"


def test_the_daemon_loads_nothing_of_the_queue() -> None:
    program = f"import json, sys, {DAEMON}.__main__; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    ours = {name for name in json.loads(done.stdout) if name.partition(".")[0] == "jobyard"}
    assert {name for name in ours if not name.startswith(DAEMON)} == ALLOWED


def test_what_runs_inside_is_the_standard_library_and_itself() -> None:
    for path in Path(inside.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                top = name.partition(".")[0]
                assert top in sys.stdlib_module_names or name == f"{DAEMON}.inside", f"{path.name}: {name}"
