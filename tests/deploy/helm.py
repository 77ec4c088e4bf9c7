"""Helm itself, in a process of its own: its library brings Go's threads and signal handlers along.

`python -m tests.deploy.helm` reads requests as JSON from standard input and writes one outcome for each.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import Any, NamedTuple

import pytest
import yaml

from tests.house.repository import ROOT

CHART = ROOT / "deploy/helm/jobyard"
RELEASE, NAMESPACE = "ci", "jobs"


class Request(NamedTuple):
    values: dict[str, Any]
    api: str | None = None  # the address of a Kubernetes API for `lookup`; None: a rendering without a cluster
    lints: bool = False


@dataclass(frozen=True)
class Outcome:
    """What Helm rendered, or why it refused."""

    files: dict[str, str]
    error: str = ""
    messages: Sequence[str] = ()  # of the linter

    @cached_property
    def objects(self) -> list[dict[str, Any]]:
        text = "\n---\n".join(text for name, text in self.files.items() if name.endswith(".yaml"))
        return [each for each in yaml.load_all(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)) if each]

    @property
    def notes(self) -> str:
        return next(text for name, text in self.files.items() if name.endswith("NOTES.txt"))


def helm(requests: Sequence[Request]) -> list[Outcome]:
    if find_spec("helm_python") is None:
        reason = "helm-python-sdk is not installed: it exists for Linux on x86-64."
        if os.environ.get("CI"):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    child = subprocess.run(
        [sys.executable, "-m", "tests.deploy.helm"],
        input=json.dumps(requests),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    return [Outcome(**fields) for fields in json.loads(child.stdout)]


def main() -> None:
    requests = [Request(*fields) for fields in json.load(sys.stdin)]
    json.dump([asdict(outcome(request)) for request in requests], sys.stdout)


def outcome(request: Request) -> Outcome:
    import helm_python  # noqa: PLC0415  # only in the child

    if request.lints:
        report = helm_python.lint(CHART, request.values, strict=True, namespace=NAMESPACE)
        found = [f"{each['path']}: {each['error']}" for each in report["messages"] if each["severity"] > 1]
        return Outcome({}, messages=[*found, *report["errors"]])
    try:
        with helm_python.Chart.load(CHART) as chart:
            chart.validate_schema(request.values)
            if request.api is None:
                return Outcome(chart.render(request.values, name=RELEASE, namespace=NAMESPACE))
            with helm_python.Config(kube_apiserver=request.api, kube_token="test", namespace=NAMESPACE) as config:
                files = config.render(chart, request.values, name=RELEASE, namespace=NAMESPACE, is_upgrade=True)
                return Outcome(files)
    except helm_python.HelmError as error:
        return Outcome({}, error=str(error))


if __name__ == "__main__":
    main()
