"""examples/django-shop as its README page says: its own tests, the worker command, the admin, and PostgreSQL."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.house.repository import ROOT
from tests.story.engines import empty_store
from tests.support import python

pytestmark = pytest.mark.timeout(400)  # several Pythons and a worker start one after the other

# In a process of its own: Django is configured once per process.
VISIT = """
import os, re, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "shop.settings"
import django
django.setup()
from django.contrib.auth.models import User
from django.test import Client
from shop.jobs import wait, yard

client = Client(headers={"host": "localhost"})
taken = client.post("/orders", {"email": "ann@example.org"}).json()
assert wait(yard.result(taken["job"], timeout=150)) == "sent to ann@example.org"
shown = client.get(f"/jobs/{taken['job']}").json()
assert shown["state"] == "COMPLETED", shown
User.objects.create_superuser("admin", "", "admin")
client.login(username="admin", password="admin")
for address in ("/admin/shop/order/", f"/admin/shop/order/{taken['order']}/change/"):
    page = client.get(address).content.decode()
    assert re.search(rf'<a href="[^"]+/#/jobs/{taken["job"]}">COMPLETED</a>', page), page
print("seen")
"""

POSTGRES = """
import os, sys
from urllib.parse import urlsplit
import django
from django.conf import settings

parts = urlsplit(sys.argv[1])
database = {
    "ENGINE": "django.db.backends.postgresql", "NAME": parts.path.strip("/"), "USER": parts.username,
    "PASSWORD": parts.password or "", "HOST": parts.hostname or "", "PORT": parts.port or "",
}
settings.configure(DATABASES={"default": database})
django.setup()
from django.db import connection, transaction
from jobyard import Jobyard
from jobyard.errors import NotPossible

yard = Jobyard(sys.argv[2])
wait = yard.blocking()


@yard.job
def send(order: int) -> None: ...


with transaction.atomic():
    wait(send.options(transaction=connection).enqueue(1))
    transaction.set_rollback(True)
assert list(wait(yard.jobs())) == []
with transaction.atomic():
    wait(yard.enqueue("send", {"order": 2}, transaction=connection))
    assert list(wait(yard.jobs())) == []
assert [job.payload for job in wait(yard.jobs())] == [{"order": 2}]
try:
    send.options(transaction=connection)
except NotPossible as error:
    assert "transaction.atomic()" in str(error)
else:
    raise AssertionError("not refused")
print("joined")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    copied = tmp_path / "django-shop"
    shutil.copytree(ROOT / "examples/django-shop", copied, ignore=shutil.ignore_patterns("*.sqlite3*", "__pycache__"))
    return copied


def test_its_own_tests_pass(folder: Path) -> None:
    response = python("-W", "error::ResourceWarning", "manage.py", "test", cwd=folder, timeout=180)
    assert response.returncode == 0, response.stderr
    assert "Ran 4 tests" in response.stderr


def test_the_worker_command_runs_what_a_request_enqueued(folder: Path) -> None:
    assert python("manage.py", "migrate", "-v", "0", cwd=folder, timeout=180).returncode == 0
    checked = python("manage.py", "makemigrations", "--check", "--dry-run", cwd=folder, timeout=180)
    assert checked.returncode == 0, checked.stdout
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen(
        [sys.executable, "manage.py", "run_worker", "--queue", "mail"], cwd=folder, env=environment
    ) as worker:
        try:
            response = python("-c", VISIT, cwd=folder, timeout=180)
            assert (response.stdout, response.returncode) == ("seen\n", 0), response.stderr
        finally:
            worker.send_signal(signal.SIGTERM)
        assert worker.wait(120) == 0


def test_django_on_postgres(tmp_path: Path, postgres_url: str) -> None:
    with empty_store("postgres", tmp_path, may_be_used=True) as url:
        response = python("-c", POSTGRES, postgres_url, url, cwd=tmp_path, timeout=180)
        assert (response.stdout, response.returncode) == ("joined\n", 0), response.stderr
