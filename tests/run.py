"""Every test, in two processes at once: the stores' conformance beside all the rest. `make test` calls this."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

PYTEST = [sys.executable, "-m", "pytest"]
APART = "tests/conformance"


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        # Its words come after those of the rest; stories with tight times run when it has long ended.
        log = Path(folder, "conformance.log")
        with log.open("wb") as out:
            apart = subprocess.Popen([*PYTEST, APART], stdout=out, stderr=subprocess.STDOUT)
            try:
                codes = [subprocess.run([*PYTEST, f"--ignore={APART}"], check=False).returncode, apart.wait()]
            finally:
                if apart.poll() is None:
                    apart.terminate()
                    apart.wait()
        sys.stdout.write(f"\n{APART}:\n{log.read_text(errors='replace')}")
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
