"""Every test, in parts beside each other: most of them wait for something. `make test` calls this.

What fails beside the others is tried once more when everything else has ended. It counts as failed when it fails again;
else it is named at the end: two cores and hundreds of processes now and then make a test wait too long.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import NamedTuple

AT_ONCE = 3
# More failures than these are no bad luck.
FEW = 10
# The longest first; what minds the time of others comes when most of them have ended.
PARTS = (
    ("stories", ("tests/story",)),
    ("conformance", ("tests/conformance",)),
    ("doors", ("tests/server", "tests/browser", "tests/client")),
    ("stores", ("tests/stores",)),
)
LAST = (("sandbox", ("tests/sandbox",)),)
REST = ("rest", ("tests", "src", *(f"--ignore={path}" for _, paths in PARTS + LAST for path in paths)))
_FAILED = re.compile(r"^(?:FAILED|ERROR) ((?:tests|src)/\S+\.py::\S.*?)(?: - .*)?$", re.MULTILINE)
_ENGINES = re.compile(r"^conformance: .*$", re.MULTILINE)  # how many on each store


class Part(NamedTuple):
    name: str
    code: int
    words: str
    seconds: float

    @property
    def summary(self) -> str:
        return self.words.rstrip().rpartition("\n")[2].strip("= ")

    @property
    def failed(self) -> list[str]:
        return _FAILED.findall(self.words)

    def count(self, words: str) -> int:
        return sum(int(number) for number in re.findall(rf"(\d+) (?:{words})", self.summary))

    @property
    def can_be_repeated(self) -> bool:
        """It ran to its end, and each of its failures is known by name."""
        return 0 < len(self.failed) == self.count("failed|error")


def pytest(name: str, arguments: Sequence[str]) -> Part:
    began = time.monotonic()
    with tempfile.TemporaryFile() as out:
        # A file, not a pipe: what a test leaves running must not keep this from ending.
        command = [sys.executable, "-m", "pytest", *arguments]
        code = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, check=False)
        out.seek(0)
        return Part(name, code.returncode, out.read().decode(errors="replace"), time.monotonic() - began)


def ended(parts: Sequence[tuple[str, Sequence[str]]]) -> Iterator[Part]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for running in as_completed([pool.submit(pytest, *part) for part in parts]):
            part = running.result()
            for line in (*_ENGINES.findall(part.words), f"{part.name}: {part.summary}"):
                print(line, flush=True)
            yield part


def main() -> int:
    parts = list(ended([*PARTS, REST, *LAST]))
    bad = [part for part in parts if part.code]
    for part in bad:
        print(f"\n{part.name}:\n{part.words}")
    failed = [test for part in bad for test in part.failed]
    if not bad:
        return report(parts, [])
    if len(failed) > FEW or not all(part.can_be_repeated for part in bad):
        return report(parts, failed)
    print(f"\nOnce more, alone: {len(failed)}", flush=True)
    again = pytest("again", failed)
    print(again.words)
    if again.code == 0:
        print("Unsteady, passed when run alone: " + ", ".join(failed))
    return report(parts, failed if again.code else [], unsteady=0 if again.code else len(failed))


def report(parts: Sequence[Part], failed: Sequence[str], unsteady: int = 0) -> int:
    slowest = max(parts, key=lambda part: part.seconds)
    print(f"\n{len(parts)} parts, the longest ({slowest.name}) took {slowest.seconds:.0f} s")
    bad = len(failed) or sum(1 for part in parts if part.code and not unsteady)
    passed, skipped = (sum(part.count(word) for part in parts) for word in ("passed", "skipped"))
    print(f"tests: {passed + unsteady} passed, {bad} failed, {skipped} skipped")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
