"""`jobyard runners` on a store and through a server, with a fake GitHub on a port."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from click.testing import Result
from tests.cli.support import Shop, error_code, invoke
from tests.cli.support import shop as shop  # noqa: PLC0414  # a fixture
from tests.github.runner_site import LABELS, SPEC, RunnerSite, accept, runner_site
from tests.server.support import ApiServer, serving

from jobyard.cli.commands import runners_check
from jobyard.cli.findings import runners as checks
from jobyard.config.store_factory import make_store
from jobyard.demo.fake_github import FakeGitHub, JobSpec
from jobyard.demo.fake_github import entities as fake
from jobyard.demo.fake_github.server import serve
from jobyard.domain.runners.settings import ManagerSettings
from jobyard.operations.local import LocalOperations
from jobyard.ports.store import Finding, Level
from jobyard.server.routes.table import ALL_ROUTES

T = TypeVar("T")


class GitHubThread:
    """A fake GitHub on a port, in a thread of its own: commands run event loops of their own."""

    def __init__(self) -> None:
        self.url = ""
        self.github: FakeGitHub | None = None
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),))
        self._thread.start()
        assert self._ready.wait(10)

    async def _serve(self) -> None:
        self.github = FakeGitHub(clock=time.time, rng=random.Random(5), deliver=accept)
        async with serve(self.github) as self.url:
            self._ready.set()
            await self._stop.wait()

    def call(self, work: Callable[[FakeGitHub], T]) -> T:
        """Change the model in its own thread."""

        async def body() -> T:
            assert self.github is not None
            return work(self.github)

        return asyncio.run_coroutine_threadsafe(body(), self._loop).result(60)

    def queue(self, repo: str, spec: JobSpec = SPEC) -> fake.Job:
        def work(github: FakeGitHub) -> fake.Job:
            owner, _, name = repo.partition("/")
            org = github.accounts.owners.get(owner) or github.create_organization(owner)
            repository = org.repositories.get(name) or github.create_repository(org, name)
            return github.queue_run(repository, [spec]).jobs[0]

        return self.call(work)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(60)
        self._loop.close()


@pytest.fixture(scope="module")
def github() -> Iterator[GitHubThread]:
    made = GitHubThread()
    yield made
    made.close()


class Runners:
    """Commands in a folder with a configuration and a store."""

    def __init__(self, folder: Path, github: GitHubThread) -> None:
        self.folder = folder
        self.github = github
        self.store = f"sqlite:///{folder}/jobs.db"
        token = github.call(lambda model: model.create_personal_token(["admin:org", "repo"]).value)
        self.section: dict[str, Any] = {
            "max_total": 5,
            "max_per_org": 2,
            "github_url": github.url,
            "github_token": token,
            "webhook_secrets": ["a-long-enough-secret"],
            "clusters": {"here": {"backend": "process", "runner_folder": str(folder), "work_folder": str(folder)}},
            "profiles": [{"name": "linux", "labels": list(LABELS), "cluster": "here"}],
        }

    def run(self, *words: str, server: str = "", token: str = "") -> Result:
        document = {"store": {"url": self.store}, "runners": self.section}
        (self.folder / "jobyard.yaml").write_text(json.dumps(document))
        where = ("--server", server) if server else ()
        return invoke(*where, *words, env={"JOBYARD_TOKEN": token} if token else None)

    def json(self, *words: str, **options: str) -> Any:
        result = self.run(*words, "--json", **options)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    @asynccontextmanager
    async def site(self) -> Any:
        settings = ManagerSettings(max_total=5, max_per_org=2)
        async with runner_site(settings, make_store(self.store)) as site:
            yield site

    def do(self, work: Callable[[RunnerSite], Awaitable[T]]) -> T:
        async def body() -> T:
            async with self.site() as site:
                return await work(site)

        return asyncio.run(body())


@pytest.fixture
def runners(shop: Shop, github: GitHubThread) -> Runners:
    made = Runners(shop.folder, github)
    made.do(RunnerSite.start_manager)
    return made


async def fill(site: RunnerSite) -> None:
    for org in ("acme", "beta"):
        for _ in range(4):
            await site.receive(org)
    await site.start_jobs((await site.launch())[:1])


def test_summary_and_lists(runners: Runners) -> None:
    runners.do(fill)
    shown = runners.run("runners").stdout
    assert "2 organizations \N{MULTIPLICATION SIGN} 2: at most 4 of 5 can run." in shown
    assert "Runners  4/5   jobs: 1 in progress, 4 waiting" in shown
    assert "org_limit_reached" in shown
    orgs = runners.json("runners", "orgs")["orgs"]
    assert [(org["name"], org["running"], org["waiting"]) for org in orgs] == [("acme", 2, 2), ("beta", 2, 2)]
    assert runners.json("runners")["totals"]["reachable"] == 4
    waiting = runners.json("runners", "jobs", "--org", "acme", "--state", "queued")["jobs"]
    assert {job["org_name"] for job in waiting} == {"acme"}
    table = runners.run("runners", "jobs").stdout.splitlines()
    assert (len(table), table[0].split("\t")[0]) == (9, "job")
    pods = runners.json("runners", "pods")["pods"]
    assert sorted(pod["state"] for pod in pods) == ["busy", "starting", "starting", "starting"]
    assert runners.run("runners", "pods", "--state", "idle").stdout.count("\n") == 1
    few = runners.run("runners", "jobs", "--limit", "3")
    assert "pass --limit" in few.stderr


def test_explanation_of_one_job(runners: Runners) -> None:
    runners.do(fill)
    last = runners.json("runners", "jobs", "--org", "acme")["jobs"][-1]
    for words in (("runners", "job"), ("explain",)):
        shown = runners.run(*words, str(last["job_id"])).stdout
        assert "org_limit_reached  2 of 2 runners of acme run." in shown
        assert "received" in shown
        found = runners.json(*words, str(last["job_id"]))
        assert (found["reason"]["code"], found["timeline"][0]["what"]) == ("org_limit_reached", "received")
    assert error_code(runners.run("runners", "job", "17")) == "job_not_found"
    assert error_code(runners.run("explain", "1" * 30)) == "job_not_found"


def test_limits_of_organizations(runners: Runners) -> None:
    runners.do(fill)
    assert runners.run("limits", "set", "runners", "acme", "25").exit_code == 0
    [acme, _] = runners.json("runners", "orgs")["orgs"]
    assert (acme["limit"], acme["own_limit"]) == (25, 25)
    assert "acme 25 + 1 organization \N{MULTIPLICATION SIGN} 2: at most 5 of 5" in runners.run("runners").stdout
    assert runners.run("limits", "remove", "runners", "acme").exit_code == 0
    assert runners.json("runners", "orgs")["orgs"][0]["own_limit"] is None


def test_limits_and_what_if_know_organizations_in_any_spelling(runners: Runners) -> None:
    runners.do(fill)
    shown = runners.run("limits", "set", "runners", "ACME", "25").stdout
    assert shown.startswith("Group acme of queue runners")
    assert "ACME is known as acme." in shown
    assert {org["name"] for org in runners.json("runners", "orgs")["orgs"]} == {"acme", "beta"}
    assert "No job of newco is known yet." in runners.run("runners", "what-if", "--org", "newco=3").stdout
    found = runners.json("runners", "what-if", "--org", "ACME=1")
    assert found["notes"] == ["ACME is known as acme."]
    assert found["sentence"].startswith("acme 1 + ")
    assert "No job of newco is known yet." in runners.run("limits", "set", "runners", "newco", "3").stdout


def test_what_if(runners: Runners) -> None:
    runners.do(fill)
    found = runners.json("runners", "what-if", "--max-per-org", "50", "--max-total", "100", "--org", "acme=25")
    assert (found["reachable"], found["now"]) == (75, 4)
    shown = runners.run("runners", "what-if", "--org", "gamma=1").stdout
    assert "gamma 1 + 2 organizations \N{MULTIPLICATION SIGN} 2: at most 5 of 5 can run" in shown
    assert runners.run("runners", "what-if", "--org", "gamma").exit_code == 2


def test_requeue(runners: Runners, github: GitHubThread) -> None:
    job = github.queue("acme/shop")
    result = runners.run("runners", "requeue", "acme/shop", str(job.id))
    assert (result.exit_code, f"Job {job.id}" in result.stdout) == (0, True)
    assert [each["job_id"] for each in runners.json("runners", "jobs")["jobs"]] == [job.id]
    assert error_code(runners.run("runners", "requeue", "acme/shop", "99")) == "not_found"
    assert runners.run("runners", "requeue", "acme", "99").exit_code == 2
    github.call(lambda model: model.cancel(job.run))
    assert error_code(runners.run("runners", "requeue", "acme/shop", str(job.id))) == "not_possible"

    async def audited(site: RunnerSite) -> list[str]:
        return [entry.action async for entry in LocalOperations(site.store).audit_log()]

    assert runners.do(audited) == ["runners.requeue"]
    runners.section["profiles"] = []
    assert error_code(runners.run("runners", "requeue", "acme/shop", str(job.id))) == "configuration"


def test_through_a_server(runners: Runners, github: GitHubThread) -> None:
    async def body() -> None:
        async with runners.site() as site:
            await fill(site)
            api = ApiServer(site.store, ALL_ROUTES)
            api.dependencies.runners = site.services
            job = site.queue_on_github("gamma/shop")
            async with serving(api.app) as url:
                token = await api.token("operator")
                for words in (
                    ("runners",),
                    ("runners", "orgs"),
                    ("runners", "jobs"),
                    ("runners", "pods"),
                    ("runners", "job", "1001"),
                    ("explain", "1001"),
                    ("runners", "requeue", "gamma/shop", str(job.id)),
                ):
                    found = await asyncio.to_thread(runners.json, *words, server=url, token=token)
                    assert found, words
                refused = await asyncio.to_thread(runners.run, "runners", "check", server=url, token=token)
                assert error_code(refused) == "configuration"

    asyncio.run(body())


def findings(result: Result) -> list[tuple[str, str, str]]:
    return [(each["level"], each["what"], each["says"]) for each in json.loads(result.stdout)["findings"]]


def test_check(runners: Runners, github: GitHubThread) -> None:
    async def recent(site: RunnerSite) -> None:
        await site.receive("acme")

    runners.do(recent)
    github.queue("acme/shop")
    runners.section["org_limits"] = {"nowhere": 3, "ACME": 2}
    result = runners.run("runners", "check", "--json")
    found = findings(result)
    assert ("warn", "org_limits", "no job of nowhere is known yet") in found
    assert ("warn", "org_limits", "ACME is known as acme, which has this limit") in found
    assert result.exit_code == 1
    assert ("ok", "github", f"{github.url} accepts the credentials") in found
    assert ("ok", "acme", "runners can be registered") in found
    assert ("ok", "acme", 'runner group "Default" can be used by 1 recent repository') in found
    assert [level for level, what, _ in found if what == "nowhere"] == ["fail"]
    assert ("warn", "webhook", "the server has no public https address") in found
    # The folder of the process cluster has no runner program.
    assert any(level == "fail" and "runner" in says for level, what, says in found if what not in ("acme", "nowhere"))
    plain = runners.run("runners", "check").stdout
    assert "ok   acme: runners can be registered" in plain


def test_check_ends_when_both_sides_hang(runners: Runners, monkeypatch: pytest.MonkeyPatch) -> None:
    async def hanging(*_: object) -> AsyncIterator[Finding]:
        yield Finding(Level.OK, "first", "it came")
        await asyncio.Event().wait()

    monkeypatch.setattr(checks, "CHECK_SECONDS", 0.1)
    monkeypatch.setattr(runners_check, "github_findings", hanging)
    monkeypatch.setattr(runners_check, "cluster_findings", hanging)
    found = findings(runners.run("runners", "check", "--json"))
    assert found.count(("ok", "first", "it came")) == 2
    assert ("fail", "github", "the check did not end within 0.1 seconds") in found
    assert ("fail", "clusters", "the check did not end within 0.1 seconds") in found


def test_check_of_wrong_settings(runners: Runners, github: GitHubThread) -> None:
    def creates_group(model: FakeGitHub) -> None:
        org = model.create_organization("delta")
        model.create_group(org, "Selected", visibility="selected")

    github.call(creates_group)
    github.queue("delta/web")

    async def recent(site: RunnerSite) -> None:
        await site.receive("delta", repo_full_name="delta/web")

    runners.do(recent)
    runners.section["profiles"][0]["runner_group"] = "Selected"
    runners.section["webhook_secrets"] = ["short"]
    found = findings(runners.run("runners", "check", "--json"))
    assert any(
        level == "fail" and what == "delta" and 'cannot use the runner group "Selected"' in says
        for level, what, says in found
    )
    assert any(level == "warn" and what == "webhook" and "shorter" in says for level, what, says in found)
    runners.section["github_token"] = "wrong"
    found = findings(runners.run("runners", "check", "--json"))
    assert any(level == "fail" and what == "github" and "rejects it" in says for level, what, says in found)
    runners.section = {"webhook_secrets": []}
    del runners.section["webhook_secrets"]
    found = findings(runners.run("runners", "check", "--json"))
    assert [(level, what) for level, what, _ in found][:2] == [("fail", "profiles"), ("fail", "webhook")]


def test_manager_needs_profiles(runners: Runners) -> None:
    runners.section["profiles"] = []
    assert error_code(runners.run("runners", "manager")) == "configuration"


def test_values_of_variables_are_not_shown(runners: Runners) -> None:
    """They may be passwords."""
    env = [{"name": "NPM_TOKEN", "value": "hidden"}, {"name": "PLACE", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}]
    containers = [{"name": "runner", "env": env}]
    runners.section["profiles"][0] |= {
        "pod_template": {"spec": {"containers": containers, "initContainers": containers}}
    }
    shown = runners.run("config", "show")
    assert shown.exit_code == 0
    assert "NPM_TOKEN" in shown.output
    assert "hidden" not in shown.output
    assert "hidden" not in runners.run("config", "show", "--json").output
