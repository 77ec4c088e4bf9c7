"""Just-in-time runners: registration, sessions of runner programs, assignment of jobs."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

from jobyard.demo.fake_github.core import Core
from jobyard.demo.fake_github.entities import Job, Owner, Repository, Runner, RunnerGroup
from jobyard.demo.fake_github.errors import ApiError, SessionRefused, not_found
from jobyard.demo.fake_github.jobs import Jobs
from jobyard.demo.fake_github.sessions import Session

NAME_LIMIT = 64
NAME_FORBIDDEN = frozenset('"/:<>\\|*?')
NAME_RULE = (
    "A valid runner name is 64 characters or less in length and does not include "
    "'\"', '/', ':', '<', '>', '\\', '|', '*' and '?'"
)
LABEL_LIMIT = 100
Scope = tuple[int, int]


class Runners:
    def __init__(self, core: Core, jobs: Jobs) -> None:
        self._core = core
        self._jobs = jobs
        self._by_scope: dict[Scope, dict[int, Runner]] = {}
        self._by_client: dict[str, Runner] = {}
        self.sessions: dict[int, Session] = {}
        self._session_of: dict[Runner, Session] = {}
        # Sessions without a job, by owner, in the order of connecting.
        self._free: dict[int, dict[int, Session]] = {}
        jobs.on_queued = self._offer
        jobs.on_ended = self._job_ended

    def generate_jitconfig(
        self,
        owner: Owner,
        repository: Repository | None,
        *,
        name: str,
        runner_group_id: int,
        labels: list[str],
        work_folder: str = "_work",
    ) -> tuple[Runner, str]:
        """Register an offline runner at once and return its configuration, which one session may use."""
        if not 1 <= len(labels) <= LABEL_LIMIT:
            count = "fewer than 1" if not labels else f"more than {LABEL_LIMIT}"
            raise ApiError(422, f"Invalid request.\n\nFor 'properties/labels', {count} items were supplied.")
        group = self._group(owner, repository, runner_group_id)
        if not name or len(name) > NAME_LIMIT or NAME_FORBIDDEN & set(name):
            raise ApiError(400, NAME_RULE)
        registered = self._by_scope.setdefault(_scope(owner, repository), {})
        if any(runner.name == name for runner in registered.values()):
            raise ApiError(409, f"Already exists - A runner with the name {name} already exists.")
        now, lifetime = self._core.clock(), self._core.timings.jit_config_lifetime
        owner.last_runner_id += 1
        runner = Runner(
            id=owner.last_runner_id,
            owner=owner,
            repository=repository,
            name=name,
            group=group,
            labels=tuple(labels),
            client_id=self._core.guid(),
            created_at=now,
            jit_expires_at=now + lifetime,
        )
        registered[runner.id] = runner
        self._by_client[runner.client_id] = runner
        runner.timer = self._core.later(lifetime, self._remove, runner)
        return runner, self._encode(runner, work_folder)

    def of_scope(self, owner: Owner, repository: Repository | None) -> list[Runner]:
        return list(self._by_scope.get(_scope(owner, repository), {}).values())

    def all(self) -> list[Runner]:
        return [runner for registered in self._by_scope.values() for runner in registered.values()]

    def get(self, owner: Owner, repository: Repository | None, runner_id: int) -> Runner:
        runner = self._by_scope.get(_scope(owner, repository), {}).get(runner_id)
        if runner is None:
            raise not_found()
        return runner

    def delete(self, runner: Runner) -> None:
        if runner.busy:
            raise ApiError(422, f'Bad request - Runner "{runner.name}" is still running a job')
        self._remove(runner)

    def connect(self, encoded_jit_config: str, *, takes_jobs: bool = True) -> Session:
        """Open a session as a runner program does. One with `takes_jobs=False` ignores what it is assigned."""
        runner = self._by_client.get(_client_id(encoded_jit_config))
        if runner is None:
            raise SessionRefused("The just-in-time configuration is not valid.")
        if runner.removed:
            raise SessionRefused("The runner registration has been deleted from the server.")
        if runner.connected:
            raise SessionRefused("A session for this runner already exists.")
        runner.connected, runner.status = True, "online"
        session = Session(id=self._core.next_id("session"), runner=runner, pool=self, takes_jobs=takes_jobs)
        self.sessions[session.id] = self._session_of[runner] = session
        self._start_idle_timer(runner)
        self._set_free(session)
        return session

    def kill(self, session: Session) -> None:
        """The runner process is gone without a word; GitHub notices later."""
        if session.outcome is not None:
            return
        timings, job = self._core.timings, session.job
        session.end("killed")
        self._core.later(timings.session_lost, self._set_offline, session)
        if job is not None and job.status == "in_progress":
            self._core.cancel(job.timer)
            seconds = timings.long_busy if self._core.hits("long_busy") else timings.job_lost
            job.timer = self._core.later(seconds, self._jobs.complete, job, "failure")

    def close(self, session: Session) -> None:
        """The runner program stops in order: a job that runs fails, the registration stays."""
        if session.outcome is not None:
            return
        job = session.job
        session.end("closed")
        if job is None:
            self._set_offline(session)
        elif job.status == "in_progress":
            self._jobs.complete(job, "failure")
        else:
            self._take_back(session, job)
            self._set_offline(session)

    def _offer(self, job: Job) -> None:
        for session in self._free.get(job.repository.owner.id, {}).values():
            if session.runner.may_run(job):
                self._core.later(self._core.timings.assignment_delay, self._match, session)
                return

    def _set_free(self, session: Session) -> None:
        self._free.setdefault(session.runner.owner.id, {})[session.id] = session
        self._core.later(self._core.timings.assignment_delay, self._match, session)

    def _match(self, session: Session) -> None:
        """Give a free runner the oldest queued job that it may run."""
        runner = session.runner
        free = self._free.get(runner.owner.id, {})
        if session.id not in free:
            return self._offer_again(runner.owner)
        fitting = [job for job in self._jobs.queued_of(runner.owner) if runner.may_run(job)]
        if not fitting:
            return None
        job = min(fitting, key=lambda each: (each.queued_at, each.id))
        del free[session.id]
        self._jobs.assign(job, runner)
        runner.busy, runner.job, session.job = True, job, job
        self._core.cancel(runner.timer)
        session.assigned.set()
        if session.takes_jobs and session.outcome is None:
            job.timer = self._core.later(self._core.timings.start_delay, self._start, session, job)
        else:
            job.timer = self._core.later(self._core.timings.assignment_timeout, self._not_taken, session, job)
        return None

    def _offer_again(self, owner: Owner) -> None:
        """A runner that an offer was meant for is gone or busy: look for another one."""
        free = self._free.get(owner.id, {})
        for job in self._jobs.queued_of(owner):
            for session in free.values():
                if session.runner.may_run(job):
                    return self._match(session)
        return None

    def _start(self, session: Session, job: Job) -> None:
        if session.outcome is not None:
            job.timer = self._core.later(self._core.timings.assignment_timeout, self._not_taken, session, job)
            return
        self._jobs.start(job)
        session.started.set()
        job.timer = self._core.later(job.spec.duration, self._jobs.complete, job, job.spec.conclusion)

    def _not_taken(self, session: Session, job: Job) -> None:
        """Assigned, but the runner did not take it in time: the job is queued again, the runner is offline."""
        self._take_back(session, job)
        session.end("closed")
        self._set_offline(session)

    def _take_back(self, session: Session, job: Job) -> None:
        runner = session.runner
        self._core.cancel(job.timer)
        runner.busy, runner.job, session.job, job.runner = False, None, None, None
        self._jobs.enqueue(job)

    def _job_ended(self, job: Job) -> None:
        runner = job.runner
        if runner is None:
            return
        session = self._session_of[runner]
        runner.busy, runner.job = False, None
        if job.started_at is not None:
            session.end("completed")
            self._remove(runner)
            return
        session.job = None
        if session.outcome is None:
            session.assigned.clear()
            self._start_idle_timer(runner)
            self._set_free(session)

    def _start_idle_timer(self, runner: Runner) -> None:
        self._core.cancel(runner.timer)
        if self._core.timings.idle_removal is not None:
            runner.timer = self._core.later(self._core.timings.idle_removal, self._remove, runner)

    def _set_offline(self, session: Session) -> None:
        runner = session.runner
        self._free.get(runner.owner.id, {}).pop(session.id, None)
        runner.status = "offline"
        self._core.cancel(runner.timer)
        if not runner.removed:
            runner.timer = self._core.later(self._core.timings.offline_removal, self._remove, runner)

    def _remove(self, runner: Runner) -> None:
        if runner.busy:
            return
        runner.removed, runner.status = True, "offline"
        self._core.cancel(runner.timer)
        self._by_scope[_scope(runner.owner, runner.repository)].pop(runner.id, None)
        if runner.connected:
            session = self._session_of[runner]
            self._free.get(runner.owner.id, {}).pop(session.id, None)
            if session.outcome is None and not self._core.hits("zombie"):
                session.end("removed")

    def _group(self, owner: Owner, repository: Repository | None, group_id: int) -> RunnerGroup:
        if repository is not None and group_id != 1:
            raise not_found()
        group = owner.groups.get(group_id)
        if group is None:
            raise not_found()
        if group.inherited:
            raise ApiError(403, "Runners cannot be registered in a runner group that the enterprise shares.")
        return group

    def _encode(self, runner: Runner, work_folder: str) -> str:
        html = f"https://{self._core.host}"
        target = runner.repository.full_name if runner.repository else runner.owner.login
        settings = {
            "AgentId": str(runner.id),
            "AgentName": runner.name,
            "DisableUpdate": "False",
            "Ephemeral": "True",
            "GitHubUrl": f"{html}/{target}",
            "PoolId": str(runner.group.id),
            "PoolName": runner.group.name,
            "ServerUrl": f"{html}/_services/pipelines/{runner.owner.id}/",
            "WorkFolder": work_folder,
        }
        credentials = {
            "Scheme": "OAuth",
            "Data": {
                "ClientId": runner.client_id,
                "AuthorizationUrl": f"{html}/_services/vstoken/{runner.owner.id}/_apis/oauth2/token/",
                "RequireFipsCryptography": "True",
            },
        }
        key = {"exponent": "AQAB", "modulus": self._core.text(344), "d": self._core.text(344)}
        files: dict[str, Mapping[str, Any]] = {
            ".runner": settings,
            ".credentials": credentials,
            ".credentials_rsaparams": key,
        }
        return _base64_json({name: _base64_json(content) for name, content in files.items()})


def _scope(owner: Owner, repository: Repository | None) -> Scope:
    return owner.id, repository.id if repository else 0


def _base64_json(value: Mapping[str, Any]) -> str:
    return base64.b64encode(json.dumps(value).encode()).decode()


def _client_id(encoded_jit_config: str) -> str:
    """The client id inside of a configuration; empty if it cannot be read."""
    try:
        files = json.loads(base64.b64decode(encoded_jit_config, validate=True))
        return str(json.loads(base64.b64decode(files[".credentials"]))["Data"]["ClientId"])
    except (ValueError, KeyError, TypeError, binascii.Error):
        return ""
