"""The chart, rendered once with each of its example values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from tests.deploy.helm import CHART, Outcome, Request, helm

EXAMPLES = sorted(path.name.removesuffix("-values.yaml") for path in (CHART / "ci").glob("*-values.yaml"))


def example(name: str) -> dict[str, Any]:
    values = yaml.safe_load((CHART / f"ci/{name}-values.yaml").read_text("utf-8"))
    assert isinstance(values, dict)
    return values


def changed(*changes: Mapping[str, Any]) -> dict[str, Any]:
    """The minimal example with other values on top of it."""
    values = example("minimal")
    for change in changes:
        values = _merged(values, change)
    return values


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    made = dict(below)
    for key, value in above.items():
        made[key] = _merged(made.get(key) or {}, value) if isinstance(value, dict) else value
    return made


@pytest.fixture(scope="session")
def rendered() -> dict[str, Outcome]:
    outcomes = dict(zip(EXAMPLES, helm([Request(example(name)) for name in EXAMPLES]), strict=True))
    assert {name: outcome.error for name, outcome in outcomes.items() if outcome.error} == {}
    return outcomes


@pytest.fixture(params=EXAMPLES)
def chart(request: pytest.FixtureRequest, rendered: dict[str, Outcome]) -> Outcome:
    return rendered[request.param]
