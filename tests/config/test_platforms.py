"""Platforms: their configuration, their queues, and the platforms of a worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.cli.support import Shop, shop

from jobyard.config import load
from jobyard.domain.platforms import GIGABYTE, Platform, WorkerClass, memory_budget, queue_for
from jobyard.errors import ConfigurationError

__all__ = ["shop"]

FILE = """
platforms:
  oliveyoung: {class: browser}
  hwahae: {class: api, max_running: 3}
  zigzag:
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "jobyard.yaml"
    path.write_text(FILE)
    return path


def refusal(**environment: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load(environment)
    return str(caught.value)


def test_each_platform_is_a_queue_that_runs_one_job_at_a_time(file: Path) -> None:
    found = load({}).configuration
    assert found.platforms == {
        "oliveyoung": Platform(worker_class=WorkerClass.BROWSER),
        "hwahae": Platform(max_running=3, worker_class=WorkerClass.API),
        "zigzag": Platform(),
    }
    limits = {name: settings["max_running"] for name, settings in found.all_queues().items()}
    assert limits == {"oliveyoung": 1, "hwahae": 3, "zigzag": 1}


@pytest.mark.parametrize("text", ["oliveyoung, ably", '["oliveyoung", "ably"]', '{"oliveyoung": {}, "ably": null}'])
def test_a_variable_lists_them_too(text: str) -> None:
    assert load({"JOBYARD_PLATFORMS": text}).configuration.platforms == {"oliveyoung": Platform(), "ably": Platform()}


def test_a_setting_of_the_queue_overrides_the_platform(file: Path) -> None:
    file.write_text("platforms: [ably]\nqueues:\n  ably: {max_running: 2, keep_failed: 7}\n  mail: {max_running: 9}\n")
    queues = load({}).configuration.all_queues()
    assert queues == {"ably": {"max_running": 2, "keep_failed": 7}, "mail": {"max_running": 9}}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("platforms: 3", ("list of names",)),
        ("platforms: {a: 1}", ("platforms.a", "mapping")),
        ("platforms: {a: {clas: api}}", ("Unknown key clas in platforms.a", 'Did you mean "class"?')),
        ("platforms: {a: {class: browsr}}", ("platforms.a.class", 'Did you mean "browser"?')),
        ("platforms: {a: {max_running: -1}}", ("platforms.a.max_running", "-1")),
        ("platforms: [[]]", ("platforms", "printable")),
        ("plattforms: [a]", ('Did you mean "platforms"?',)),
        ("worker: {memory_limit: much}", ("worker.memory_limit", "4G")),
        ("worker: {memory_limit: -1}", ("worker.memory_limit", "-1")),
    ],
)
def test_a_mistake_is_named_with_its_line(file: Path, text: str, named: tuple[str, ...]) -> None:
    file.write_text(text)
    message = refusal()
    assert message.startswith("jobyard.yaml:1: ")
    for word in named:
        assert word in message


def test_an_unknown_platform_of_a_worker_is_refused_with_the_known_ones(file: Path) -> None:
    message = refusal(WORKER_PLATFORMS="hwahae,oliveyuong")
    assert message.startswith("WORKER_PLATFORMS: Unknown platform oliveyuong.")
    assert "Known platforms: oliveyoung, hwahae, zigzag, extract, default." in message
    assert 'Did you mean "oliveyoung"?' in message
    assert load({"WORKER_PLATFORMS": "extract,default"}).configuration.worker.platforms == ("extract", "default")


def test_queues_and_platforms_of_a_worker_exclude_each_other(file: Path) -> None:
    message = refusal(WORKER_PLATFORMS="hwahae", JOBYARD_WORKER__QUEUES="mail")
    assert message == "JOBYARD_WORKER__QUEUES: Set worker.queues or worker.platforms (WORKER_PLATFORMS), not both."


@pytest.mark.parametrize(
    ("text", "size"), [("4G", 4 << 30), ("512m", 512 << 20), ("1.5 GiB", 3 << 29), ("2GB", 2 << 30), ("0", 0), ("9", 9)]
)
def test_sizes(text: str, size: int) -> None:
    assert load({"JOBYARD_WORKER__MEMORY_LIMIT": text}).configuration.worker.memory_limit == size


@pytest.mark.parametrize(
    ("kind", "platform", "queue"),
    [
        ("scan", "ably", "ably"),
        ("url_extraction", "ably", "ably"),
        ("url_extraction", None, "extract"),
        ("single_product", "unknown", "extract"),
        ("multi_platform", None, "extract"),
        ("report", "unknown", "default"),
        ("report", None, "default"),
    ],
)
def test_routing(kind: str, platform: str | None, queue: str) -> None:
    assert queue_for({"ably": Platform()}, kind, platform) == queue


def test_the_memory_of_a_worker_is_that_of_its_largest_class(file: Path) -> None:
    platforms = load({}).configuration.platforms
    assert memory_budget(platforms, ("hwahae", "zigzag")) == 2 * GIGABYTE
    assert memory_budget(platforms, ("hwahae", "oliveyoung")) == 4 * GIGABYTE
    assert memory_budget(platforms, ()) == 4 * GIGABYTE
    assert memory_budget(platforms, ("zigzag",)) is None
    assert memory_budget({}, ()) is None


def test_a_worker_declares_the_platforms_and_serves_its_own(shop: Shop) -> None:
    (shop.folder / "jobyard.yaml").write_text("platforms: {slow: {}, mail: {max_running: 2}}\n")
    job, other = shop.enqueue("send", {"to": "a"}), shop.enqueue("send", {"to": "b"}, queue="slow")
    result = shop.run("worker", "--until-empty", WORKER_PLATFORMS="slow")
    assert result.exit_code == 0, result.output

    def states() -> list[Any]:
        return [shop.json("jobs", "show", each)["state"] for each in (job, other)]

    assert states() == ["PENDING", "COMPLETED"]
    limits = {queue["name"]: queue["settings"]["max_running"] for queue in shop.json("queues", "list")["queues"]}
    assert limits == {"mail": 2, "slow": 1}
    shop.run("worker", "--until-empty", "--queue", "mail", WORKER_PLATFORMS="slow")
    assert states() == ["COMPLETED", "COMPLETED"]
    refused = shop.run("worker", WORKER_PLATFORMS="slwo")
    assert refused.exit_code == 1
    assert 'Did you mean "slow"?' in refused.output
