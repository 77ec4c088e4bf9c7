"""The measured process: one case, once, its outcome written to a file."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from bench.contender import Order, load


def main(module: str, case_name: str, jobs: str, folder: str, url: str, answer: str) -> None:
    case = next(case for case in load(module).cases if case.name == case_name)
    outcome = case.measure(Order(int(jobs), Path(folder), url))
    Path(answer).write_bytes(msgspec.json.encode(outcome))


if __name__ == "__main__":
    main(*sys.argv[1:])
