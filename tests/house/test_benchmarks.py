"""The page of benchmarks says what was measured, and nothing else."""

from __future__ import annotations

from bench.page import PAGE, filled
from tests.house.repository import ROOT


def test_the_page_is_filled_from_the_results() -> None:
    text = PAGE.read_text("utf-8")
    assert text == filled(text, ROOT / "bench" / "results"), "run: .venv/bin/python -m bench --page"
