"""The bundled Redis, started with the files of the chart."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobyard.config.store_factory import make_store
from jobyard.ports.store import Level
from tests.deploy.helm import RELEASE, Outcome
from tests.deploy.objects import container, one
from tests.servers.absent import Absent
from tests.servers.fixtures import absent
from tests.servers.redis import RedisServer

NAME = f"{RELEASE}-jobyard-redis"
PASSWORD = 'a "quoted" \\ pass #word'


class ChartRedis(RedisServer):
    """The container of the chart, with its folders below one of ours."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__()
        stateful = one(outcome.objects, "StatefulSet", NAME)
        self._folders = {each["mountPath"]: self.folder / each["name"] for each in container(stateful)["volumeMounts"]}
        self._words: list[str] = container(stateful)["command"]
        self.ready_words: list[str] = container(stateful)["readinessProbe"]["exec"]["command"]
        for folder in self._folders.values():
            folder.mkdir()
        for name, text in one(outcome.objects, "ConfigMap", NAME)["data"].items():
            (self._folders["/etc/redis"] / name).write_text(self.here(text).replace("6379", str(self.port)))
        self.password_file = self._folders["/run/secrets/redis"] / "password"
        self.password_file.write_text(PASSWORD)

    def here(self, text: str) -> str:
        for inside, outside in self._folders.items():
            text = text.replace(inside, str(outside))
        return text

    def command(self) -> list[str]:
        program, *words = self._words
        return [shutil.which(program) or program, *(self.here(word) for word in words)]


@pytest.fixture
def redis(rendered: dict[str, Outcome]) -> Iterator[ChartRedis]:
    try:
        server = ChartRedis(rendered["minimal"])
    except Absent as error:
        absent(error)
    with server:
        yield server


async def test_it_keeps_jobs_and_asks_for_the_password(redis: ChartRedis, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"redis://127.0.0.1:{redis.port}/0"
    assert redis.ask("GET", "a").startswith(b"-NOAUTH")
    monkeypatch.setenv("REDIS_PASSWORD_FILE", str(redis.password_file))
    store = make_store(url)
    await store.open()
    try:
        findings = await store.diagnose()
    finally:
        await store.close()
    assert [finding for finding in findings if finding.level is not Level.OK] == []
    assert not any("PASSWORD" in word or PASSWORD in word for word in cmdline(redis.pid))


def test_its_readiness_probe(redis: ChartRedis) -> None:
    command = [redis.here(word) for word in redis.ready_words]
    assert subprocess.run(command, check=False, timeout=30).returncode == 0
    redis.password_file.write_text("another")
    assert subprocess.run(command, check=False, timeout=30, capture_output=True).returncode != 0
    redis.stop()
    assert subprocess.run(command, check=False, timeout=30, capture_output=True).returncode != 0


def cmdline(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
