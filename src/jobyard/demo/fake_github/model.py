"""The fake GitHub Enterprise Server: an in-memory model without sockets."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from jobyard.demo.fake_github.accounts import Accounts
from jobyard.demo.fake_github.accounts_json import Json
from jobyard.demo.fake_github.core import Core
from jobyard.demo.fake_github.deliveries import Deliver, Webhooks, delivery_json
from jobyard.demo.fake_github.entities import (
    Hook,
    Installation,
    Job,
    JobSpec,
    Owner,
    Repository,
    Run,
    Runner,
    RunnerGroup,
    Token,
)
from jobyard.demo.fake_github.jobs import Jobs
from jobyard.demo.fake_github.keys import RsaKey
from jobyard.demo.fake_github.runners import Runners
from jobyard.demo.fake_github.sessions import Session
from jobyard.demo.fake_github.settings import Faults, Timings


class FakeGitHub:
    """Organizations, workflow jobs, just-in-time runners and webhooks.

    Timers belong to the running event loop; `clock` gives the seconds since the epoch. Both may be virtual.
    `deliver` is called for each webhook and returns the status of the receiver's response. With `app_key`
    the signatures of App tokens are checked, otherwise only their form and claims. `rate_limit` is the number
    of calls per hour and token; None, the default of GitHub Enterprise Server, means that rate limits are not
    enabled.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        rng: random.Random,
        deliver: Deliver | None = None,
        timings: Timings | None = None,
        faults: Faults | None = None,
        host: str = "github.example.com",
        version: str = "3.19.1",
        app_key: RsaKey | None = None,
        rate_limit: int | None = None,
    ) -> None:
        self.core = Core(
            clock=clock,
            rng=rng,
            timings=timings or Timings(),
            faults=faults or Faults(),
            host=host,
            version=version,
        )
        self.rate_limit = rate_limit
        self.accounts = Accounts(self.core, app_key)
        self.webhooks = Webhooks(self.core, deliver)
        self.jobs = Jobs(self.core, self.webhooks, self.accounts.installation_of)
        self.runners = Runners(self.core, self.jobs)

    @property
    def faults(self) -> Faults:
        return self.core.faults

    @faults.setter
    def faults(self, faults: Faults) -> None:
        self.core.faults = faults

    @property
    def timings(self) -> Timings:
        return self.core.timings

    # Accounts

    def create_organization(self, login: str) -> Owner:
        return self.accounts.create_owner(login, "Organization")

    def create_user(self, login: str) -> Owner:
        return self.accounts.create_owner(login, "User")

    def create_repository(self, owner: Owner, name: str, *, private: bool = True) -> Repository:
        return self.accounts.create_repository(owner, name, private=private)

    def create_group(
        self,
        owner: Owner,
        name: str,
        *,
        visibility: Literal["all", "private", "selected"] = "all",
        repositories: Iterable[Repository] = (),
        allows_public_repositories: bool = False,
        inherited: bool = False,
    ) -> RunnerGroup:
        return self.accounts.create_group(
            owner,
            name,
            visibility=visibility,
            repositories=repositories,
            allows_public_repositories=allows_public_repositories,
            inherited=inherited,
        )

    def install_app(self, owner: Owner, permissions: dict[str, str] | None = None) -> Installation:
        return self.accounts.install_app(owner, permissions)

    def create_personal_token(self, scopes: Iterable[str], lifetime: float | None = None) -> Token:
        return self.accounts.create_personal_token(scopes, lifetime)

    # Hooks

    def set_app_hook(
        self,
        url: str,
        secret: str,
        *,
        events: Sequence[str] = ("workflow_job",),
        content_type: Literal["json", "form"] = "json",
    ) -> Hook:
        """The one hook of the App: it gets the events of all organizations that installed the App."""
        hook = self.accounts.app.hook
        if hook is not None:
            hook.url, hook.secret, hook.events, hook.content_type = url, secret, events, content_type
            return hook
        app = self.accounts.app
        app.hook = self._add_hook(
            Hook(
                id=self._hook_id(),
                url=url,
                secret=secret,
                scope="app",
                target_id=app.id,
                events=events,
                content_type=content_type,
                created_at=self.core.clock(),
            )
        )
        return app.hook

    def create_organization_hook(
        self, owner: Owner, url: str, secret: str, *, events: Sequence[str] = ("workflow_job",)
    ) -> Hook:
        return self._add_hook(
            Hook(
                id=self._hook_id(),
                url=url,
                secret=secret,
                scope="organization",
                target_id=owner.id,
                events=events,
                owner=owner,
                created_at=self.core.clock(),
            )
        )

    def create_repository_hook(
        self, repository: Repository, url: str, secret: str, *, events: Sequence[str] = ("workflow_job",)
    ) -> Hook:
        return self._add_hook(
            Hook(
                id=self._hook_id(),
                url=url,
                secret=secret,
                scope="repository",
                target_id=repository.id,
                events=events,
                owner=repository.owner,
                repository=repository,
                created_at=self.core.clock(),
            )
        )

    # Workflows

    def queue_run(
        self,
        repository: Repository,
        specs: Sequence[JobSpec],
        *,
        max_parallel: int | None = None,
        concurrency: str | None = None,
        workflow_name: str = "CI",
    ) -> Run:
        return self.jobs.create_run(
            repository, specs, max_parallel=max_parallel, concurrency=concurrency, workflow_name=workflow_name
        )

    def approve(self, job: Job) -> None:
        self.jobs.approve(job)

    def reject(self, job: Job) -> None:
        self.jobs.reject(job)

    def cancel(self, what: Run | Job) -> None:
        if isinstance(what, Run):
            self.jobs.cancel_run(what)
        else:
            self.jobs.cancel_job(what)

    def rerun(self, run: Run, *, failed_only: bool = False) -> list[Job]:
        return self.jobs.rerun(run, failed_only=failed_only)

    # Runners

    def generate_jitconfig(
        self,
        scope: Owner | Repository,
        *,
        name: str,
        labels: list[str],
        runner_group_id: int = 1,
        work_folder: str = "_work",
    ) -> tuple[Runner, str]:
        repository = scope if isinstance(scope, Repository) else None
        owner = scope.owner if isinstance(scope, Repository) else scope
        return self.runners.generate_jitconfig(
            owner, repository, name=name, runner_group_id=runner_group_id, labels=labels, work_folder=work_folder
        )

    def connect(self, encoded_jit_config: str, *, takes_jobs: bool = True) -> Session:
        return self.runners.connect(encoded_jit_config, takes_jobs=takes_jobs)

    # Observation

    async def drain(self) -> None:
        """Wait until no webhook is under way."""
        await self.webhooks.drain()

    def close(self) -> None:
        """Cancel all timers and deliveries."""
        self.core.close()
        self.webhooks.close()

    def state(self) -> Json:
        """Everything that matters, for display and for comparison."""
        actions = self.core.actions_json
        return {
            "organizations": {
                owner.login: {
                    "id": owner.id,
                    "type": owner.type,
                    "repositories": [repository.name for repository in owner.repositories.values()],
                    "groups": {group.name: group.id for group in owner.groups.values()},
                }
                for owner in self.accounts.owners.values()
            },
            "runs": [
                {
                    "id": run.id,
                    "repository": run.repository.full_name,
                    "attempt": run.attempt,
                    "status": self.jobs.status(run)[0],
                    "conclusion": self.jobs.status(run)[1],
                    "jobs": [actions.job(job) for job in run.jobs],
                }
                for run in self.jobs.runs.values()
            ],
            "runners": [{**actions.runner(runner), "owner": runner.owner.login} for runner in self.runners.all()],
            "sessions": [session_json(session) for session in self.runners.sessions.values()],
            "deliveries": [delivery_json(delivery) for delivery in list(self.webhooks.log)[-100:]],
        }

    def _add_hook(self, hook: Hook) -> Hook:
        self.webhooks.add(hook)
        self.webhooks.ping(hook)
        return hook

    def _hook_id(self) -> int:
        return self.core.next_id("hook", 301)


def session_json(session: Session) -> Json:
    job = session.job
    return {
        "id": session.id,
        "runner_id": session.runner.id,
        "runner_name": session.runner.name,
        "state": session.state,
        "outcome": session.outcome,
        "job_id": job.id if job else None,
        "conclusion": job.conclusion if job else None,
    }
