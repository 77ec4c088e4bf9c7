"""The Grafana dashboard and the Prometheus rules: every metric and label that they name is exported."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from jobyard.domain.job import QueueSettings
from jobyard.observability.metrics import Metrics
from jobyard.ports.admin_store import QueueAges, QueueInfo
from jobyard.ports.schedule_store import WorkerInfo
from tests.house.repository import ROOT
from tests.servers.absent import Absent, need
from tests.servers.fixtures import absent
from tests.support import subcommands

DASHBOARD = json.loads((ROOT / "deploy/grafana/jobyard.json").read_text("utf-8"))
RULES = yaml.safe_load((ROOT / "deploy/prometheus/jobyard.rules.yml").read_text("utf-8"))
MONITORING = (ROOT / "docs/howto/monitoring.md").read_text("utf-8")
EXPRESSIONS = [
    *(target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]),
    *(variable["query"]["query"] for variable in DASHBOARD["templating"]["list"] if variable["type"] == "query"),
    *(rule["expr"] for group in RULES["groups"] for rule in group["rules"]),
]


def exported() -> dict[str, set[str]]:
    """The labels of each sample that a server exports."""
    metrics = Metrics()
    counts: dict[str, Any] = dict.fromkeys(("waiting", "delayed", "running", "completed", "failed", "cancelled"), 1)
    queue = QueueInfo(name="q", settings=QueueSettings(), paused=False, **counts)
    worker = WorkerInfo(id="w", host="h", pid=1, queues=(), concurrency=1, memory_bytes=1)
    text = metrics.text([queue], [worker], [QueueAges(queue="q")], 1).decode()
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    for registry in (metrics.registry, runner_registry()):
        # Metrics without a sample yet: prometheus_client knows their labels.
        for name, collector in registry._names_to_collectors.items():
            labels = getattr(collector, "_labelnames", ())
            found.setdefault(name, set()).update(labels)
            if name.endswith("_bucket"):
                found[name].add("le")
    return found | {"up": {"job", "instance"}}


def runner_registry() -> CollectorRegistry:
    from jobyard.github.metrics import RunnerMetrics  # noqa: PLC0415

    registry = CollectorRegistry()
    RunnerMetrics(registry)
    return registry


def runner_gauges() -> set[str]:
    """Made for each scrape of a store; their names are in the code."""
    text = (ROOT / "src/jobyard/github/metrics.py").read_text("utf-8")
    return {f"jobyard_runner_{name}" for name in re.findall(r"gauge\(\s*\"(\w+)\"", text)}


def named(expression: str) -> Iterator[tuple[str, set[str]]]:
    """The metrics of an expression, with the labels that select them."""
    for name, selectors in re.findall(r"\b(jobyard_\w+|up)(?:\{([^}]*)\})?", expression):
        yield name, set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selectors))


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_metric_is_exported_with_its_labels(expression: str) -> None:
    known, found = exported(), list(named(expression))
    assert found
    by = {label.strip() for part in re.findall(r"(?:by|on) \(([^)]*)\)", expression) for label in part.split(",")}
    labels: set[str] = set()
    for name, selected in found:
        if name in runner_gauges():
            return
        assert name in known, name
        assert selected <= known[name], name
        labels |= known[name]
    assert by <= labels, expression
    for opening, closing in ("()", "[]", "{}"):
        assert expression.count(opening) == expression.count(closing)


@pytest.fixture(scope="module")
def promtool() -> Path:
    try:
        return need("promtool")
    except Absent as error:
        absent(error)


def test_prometheus_accepts_every_expression(promtool: Path, tmp_path: Path) -> None:
    """The rules as they are, and the expressions of the dashboard with its variables filled in."""
    filled = [
        re.sub(r"\$\w+", ".*", expression.replace("$__rate_interval", "5m").replace("$__range", "1h"))
        for expression in EXPRESSIONS
        if not expression.startswith("label_values(")
    ]
    rules = [{"record": f"dashboard:{number}", "expr": expression} for number, expression in enumerate(filled)]
    dashboard = tmp_path / "dashboard.yml"
    dashboard.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    for path in (ROOT / "deploy/prometheus/jobyard.rules.yml", dashboard):
        done = subprocess.run([promtool, "check", "rules", path], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_metric_of_the_rules_and_the_dashboard_is_documented() -> None:
    shown = {name for expression in EXPRESSIONS for name, _ in named(expression)} - {"up"} - runner_gauges()
    plain = {re.sub(r"_(bucket|count|sum)$", "", name) for name in shown}
    assert [name for name in plain if f"`{name}`" not in MONITORING] == []


def test_rules_say_what_is_wrong_and_what_to_do() -> None:
    [group] = RULES["groups"]
    names = [rule["alert"] for rule in group["rules"]]
    assert len(set(names)) == len(names)
    assert {"JobyardQueueLong", "JobyardWorkerLost"} <= set(names)
    for rule in group["rules"]:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}, rule["alert"]
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        assert set(rule["annotations"]) == {"summary", "description"}
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "1m"))


def test_commands_in_the_rules_exist() -> None:
    from jobyard.cli import cli  # noqa: PLC0415

    text = (ROOT / "deploy/prometheus/jobyard.rules.yml").read_text("utf-8")
    commands = re.findall(r"`jobyard ([a-z-]+)(?: ([a-z-]+))?", text)
    assert commands
    for name, below in commands:
        command = subcommands(cli)[name]
        assert not below or below in subcommands(command), (name, below)  # type: ignore[arg-type]


def test_panels_do_not_overlap_and_have_a_unit() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["datasource"]["uid"] == "${datasource}"
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
