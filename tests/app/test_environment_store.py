"""JOBYARD_STORE is honoured by programs that name no store, and mentioned to those that name another."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobyard import Jobyard
from jobyard.config import environment_store
from jobyard.stores.memory import MemoryStore
from jobyard.testing.clock import ManualClock


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(environment_store, "_warned", set())


def test_a_yard_without_a_url_uses_the_store_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Jobyard().store.url == "sqlite:///jobs.db"
    monkeypatch.setenv("JOBYARD_STORE__URL", "sqlite:///long.db")
    assert Jobyard().store.url == "sqlite:///long.db"
    (tmp_path / "secret").write_text("sqlite:///file.db\n")
    monkeypatch.setenv("JOBYARD_STORE_FILE", str(tmp_path / "secret"))
    assert Jobyard().store.url == "sqlite:///file.db"
    monkeypatch.setenv("JOBYARD_STORE", "sqlite:///short.db")
    assert Jobyard().store.url == "sqlite:///short.db"
    assert Jobyard("sqlite:///own.db").store.url == "sqlite:///own.db"


async def test_a_program_that_names_another_store_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("JOBYARD_STORE", "redis://user:hunter2@host:6379/0")
    yard = Jobyard("sqlite:///own.db")
    async with yard.using(MemoryStore(ManualClock())):
        assert caplog.messages == []  # as `jobyard worker` does, which uses the store of the variable
    for _ in range(2):
        async with yard:
            pass
    async with Jobyard("sqlite:///own.db"):
        pass
    [message] = caplog.messages
    assert "sqlite:///own.db" in message
    assert "redis://host:6379/0" in message
    assert "hunter2" not in message


async def test_a_program_that_names_the_same_store_says_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("JOBYARD_STORE", "sqlite:///own.db")
    for yard in (Jobyard(), Jobyard("sqlite:///own.db"), Jobyard(store=MemoryStore(ManualClock()))):
        async with yard:
            pass
    assert caplog.messages == []
