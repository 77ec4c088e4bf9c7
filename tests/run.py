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
PARTS = (
    ("conformance", ("tests/conformance",)),
    ("stories", ("tests/story",)),
    ("stores", ("tests/stores",)),
    ("doors", ("tests/doors", "tests/browser", "tests/client")),
)
REST = ("rest", ("tests", "src", *(f"--ignore={path}" for _, paths in PARTS for path in paths)))
_FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/\S+\.py::\S.*?)(?: - .*)?$", re.MULTILINE)
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
    parts = list(ended([*PARTS, REST]))
    bad = [part for part in parts if part.code]
    for part in bad:
        print(f"\n{part.name}:\n{part.words}")
    failed = [test for part in bad for test in part.failed]
    if not bad:
        return report(parts, [])
    if len(failed) > FEW or not all(part.failed for part in bad):
        return report(parts, failed)
    print(f"\nOnce more, alone: {len(failed)}", flush=True)
    again = pytest("again", failed)
    print(again.words)
    if again.code == 0:
        print("Unsteady, passed when run alone: " + ", ".join(failed))
    return report(parts, failed if again.code else [], unsteady=0 if again.code else len(failed))


def report(parts: Sequence[Part], failed: Sequence[str], unsteady: int = 0) -> int:
    def count(word: str) -> int:
        return sum(int(number) for part in parts for number in re.findall(rf"(\d+) {word}", part.summary))

    slowest = max(parts, key=lambda part: part.seconds)
    print(f"\n{len(parts)} parts, the longest ({slowest.name}) took {slowest.seconds:.0f} s")
    bad = len(failed) or sum(1 for part in parts if part.code and not unsteady)
    print(f"tests: {count('passed') + unsteady} passed, {bad} failed, {count('skipped')} skipped")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
