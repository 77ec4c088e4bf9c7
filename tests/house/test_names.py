"""Names: one class name means one thing, and every store has the same files."""

from __future__ import annotations

import re
from collections import defaultdict

import pytest
from tests.house.repository import ROOT, tracked

PACKAGE = ROOT / "src/jobyard"
# The fakes speak the language of GitHub and of Kubernetes, each by itself.
FAKES = PACKAGE / "demo"
# What every store is made of. Redis has lua/ and PostgreSQL functions/ beside them, each more files of its own.
STORE_FILES = "store connection codec insert claim settle leases jobs queues schedules records notifier audit histories"
DATABASE_FILES = "diagnostics errors"


def test_one_class_name_means_one_thing() -> None:
    found = defaultdict(list)
    for path in tracked(".py"):
        if path.is_relative_to(PACKAGE) and not path.is_relative_to(FAKES):
            for name in re.findall(r"^ *class (\w+)[(:\[]", path.read_text("utf-8"), flags=re.MULTILINE):
                found[name].append(str(path.relative_to(PACKAGE)))
    assert {name: places for name, places in found.items() if len(places) > 1} == {}


@pytest.mark.parametrize("store", ["memory", "sqlite", "postgres", "redis"])
def test_every_store_has_the_same_files(store: str) -> None:
    names = f"{STORE_FILES} {DATABASE_FILES}" if store != "memory" else STORE_FILES
    assert [name for name in names.split() if not (PACKAGE / "stores" / store / f"{name}.py").is_file()] == []
