"""The control API of the fake: what people, workflows and runner programs do, for other processes."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from jobyard.demo.fake_github.entities import Hook, Job, JobSpec, Owner, Repository, Run
from jobyard.demo.fake_github.errors import ApiError, SessionRefused
from jobyard.demo.fake_github.keys import sign_jwt
from jobyard.demo.fake_github.model import FakeGitHub, session_json
from jobyard.demo.fake_github.sessions import Session
from jobyard.demo.fake_github.settings import Faults

LONGEST_WAIT = 3600.0


class NewOwner(msgspec.Struct, forbid_unknown_fields=True):
    login: str
    type: Literal["Organization", "User"] = "Organization"
    install_app: bool = True


class NewRepository(msgspec.Struct, forbid_unknown_fields=True):
    owner: str
    name: str
    private: bool = True


class NewGroup(msgspec.Struct, forbid_unknown_fields=True):
    owner: str
    name: str
    visibility: Literal["all", "private", "selected"] = "all"
    repositories: list[str] = []
    allows_public_repositories: bool = False
    inherited: bool = False


class NewToken(msgspec.Struct, forbid_unknown_fields=True):
    scopes: tuple[str, ...] = ("admin:org", "admin:org_hook", "repo")
    lifetime: float | None = None


class NewHook(msgspec.Struct, forbid_unknown_fields=True):
    """A hook of the App, or of `owner` (an organization), or of `repository` (`owner/name`)."""

    url: str
    secret: str
    owner: str | None = None
    repository: str | None = None


class NewJob(msgspec.Struct, forbid_unknown_fields=True):
    labels: list[str]
    duration: float = 10.0
    conclusion: Literal["success", "failure", "timed_out", "neutral", "action_required"] = "success"
    name: str | None = None
    environment: str | None = None
    needs: list[int] = []
    skipped: bool = False
    count: int = 1


class NewRun(msgspec.Struct, forbid_unknown_fields=True):
    repository: str
    jobs: list[NewJob]
    max_parallel: int | None = None
    concurrency: str | None = None
    workflow_name: str = "CI"


class InRepository(msgspec.Struct, forbid_unknown_fields=True):
    repository: str


class NewSession(msgspec.Struct, forbid_unknown_fields=True):
    encoded_jit_config: str
    takes_jobs: bool = True


Body = TypeVar("Body", bound=msgspec.Struct)
Endpoint = Callable[[Request], Awaitable[Response]]


class Control:
    def __init__(self, github: FakeGitHub) -> None:
        self.github = github

    def routes(self) -> list[Route]:
        table: list[tuple[str, str, Endpoint]] = [
            ("GET", "/state", self.state),
            ("GET", "/app", self.app),
            ("POST", "/organizations", self.create_owner),
            ("POST", "/repositories", self.create_repository),
            ("POST", "/groups", self.create_group),
            ("POST", "/tokens", self.create_token),
            ("POST", "/hooks", self.create_hook),
            ("GET", "/faults", self.faults),
            ("PUT", "/faults", self.set_faults),
            ("POST", "/runs", self.create_run),
            ("POST", "/runs/{id:int}/{verb}", self.change_run),
            ("POST", "/jobs/{id:int}/{verb}", self.change_job),
            ("POST", "/check-runs", self.create_check_run),
            ("POST", "/null-events", self.send_null_job),
            ("POST", "/connect", self.connect),
            ("POST", "/run", self.run_to_end),
            ("GET", "/sessions/{id:int}", self.session),
            ("POST", "/sessions/{id:int}/{verb}", self.end_session),
        ]
        return [Route(path, _explained(endpoint), methods=[method]) for method, path, endpoint in table]

    async def state(self, request: Request) -> Response:
        return _json(self.github.state())

    async def app(self, request: Request) -> Response:
        """What a client needs to authenticate as the App; the token is for use by hand."""
        app = self.github.accounts.app
        body: dict[str, object] = {"app_id": app.id, "client_id": app.client_id}
        if app.key is not None:
            body["private_key"] = app.key.private_pem()
            body["jwt"] = sign_jwt(app.key, issuer=app.id, now=self.github.core.clock())
        return _json(body)

    async def create_owner(self, request: Request) -> Response:
        new = await _read(request, NewOwner)
        owner = self.github.accounts.create_owner(new.login, new.type)
        installation = self.github.install_app(owner) if new.install_app else None
        return _json({"id": owner.id, "installation_id": installation.id if installation else None}, 201)

    async def create_repository(self, request: Request) -> Response:
        new = await _read(request, NewRepository)
        repository = self.github.create_repository(self._owner(new.owner), new.name, private=new.private)
        return _json({"id": repository.id}, 201)

    async def create_group(self, request: Request) -> Response:
        new = await _read(request, NewGroup)
        owner = self._owner(new.owner)
        group = self.github.create_group(
            owner,
            new.name,
            visibility=new.visibility,
            repositories=[self.github.accounts.repository(owner.login, name) for name in new.repositories],
            allows_public_repositories=new.allows_public_repositories,
            inherited=new.inherited,
        )
        return _json({"id": group.id}, 201)

    async def create_token(self, request: Request) -> Response:
        new = await _read(request, NewToken)
        return _json({"token": self.github.create_personal_token(new.scopes, new.lifetime).value}, 201)

    async def create_hook(self, request: Request) -> Response:
        new = await _read(request, NewHook)
        hook: Hook
        if new.repository is not None:
            hook = self.github.create_repository_hook(self._repository(new.repository), new.url, new.secret)
        elif new.owner is not None:
            hook = self.github.create_organization_hook(self._owner(new.owner), new.url, new.secret)
        else:
            hook = self.github.set_app_hook(new.url, new.secret)
        return _json({"id": hook.id}, 201)

    async def faults(self, request: Request) -> Response:
        return _json(self.github.faults)

    async def set_faults(self, request: Request) -> Response:
        self.github.faults = await _read(request, Faults)
        return _json(self.github.faults)

    async def create_run(self, request: Request) -> Response:
        new = await _read(request, NewRun)
        run = self.github.queue_run(
            self._repository(new.repository),
            [_spec(job) for job in new.jobs for _ in range(job.count)],
            max_parallel=new.max_parallel,
            concurrency=new.concurrency,
            workflow_name=new.workflow_name,
        )
        return _json({"run_id": run.id, "job_ids": [job.id for job in run.jobs]}, 201)

    async def change_run(self, request: Request) -> Response:
        run: Run | None = self.github.jobs.runs.get(request.path_params["id"])
        if run is None:
            raise ApiError(404, "There is no such run.")
        match request.path_params["verb"]:
            case "cancel":
                self.github.cancel(run)
            case "rerun":
                self.github.rerun(run)
            case "rerun-failed-jobs":
                self.github.rerun(run, failed_only=True)
            case "fail-startup":
                self.github.jobs.fail_startup(run)
            case verb:
                raise ApiError(404, f"A run cannot {verb}: use cancel, rerun, rerun-failed-jobs or fail-startup.")
        return _json({"run_id": run.id, "job_ids": [job.id for job in run.latest()]})

    async def change_job(self, request: Request) -> Response:
        job: Job | None = self.github.jobs.jobs.get(request.path_params["id"])
        if job is None:
            raise ApiError(404, "There is no such job.")
        match request.path_params["verb"]:
            case "cancel":
                self.github.cancel(job)
            case "approve":
                self.github.approve(job)
            case "reject":
                self.github.reject(job)
            case verb:
                raise ApiError(404, f"A job cannot {verb}: use cancel, approve or reject.")
        return _json(self.github.core.actions_json.job(job))

    async def create_check_run(self, request: Request) -> Response:
        new = await _read(request, InRepository)
        return _json({"id": self.github.jobs.create_check_run(self._repository(new.repository))}, 201)

    async def send_null_job(self, request: Request) -> Response:
        new = await _read(request, InRepository)
        self.github.jobs.send_null_job(self._repository(new.repository))
        return _json({}, 201)

    async def connect(self, request: Request) -> Response:
        new = await _read(request, NewSession)
        session = self.github.connect(new.encoded_jit_config, takes_jobs=new.takes_jobs)
        return _json(session_json(session), 201)

    async def run_to_end(self, request: Request) -> Response:
        """A whole runner program in one request: the body is the configuration, the response its outcome.

        A client that disconnects counts as a killed runner.
        """
        session = self.github.connect((await request.body()).decode().strip())
        ended = asyncio.ensure_future(session.wait())
        gone = asyncio.ensure_future(request.receive())
        try:
            await asyncio.wait((ended, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            session.kill()
            ended.cancel()
            gone.cancel()
        return PlainTextResponse(f"{session.outcome}\n")

    async def session(self, request: Request) -> Response:
        """The session now, or after it ended if that happens within `wait` seconds."""
        session = self._session(request)
        seconds = min(LONGEST_WAIT, float(request.query_params.get("wait", "0")))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(session.wait(), seconds)
        return _json(session_json(session))

    async def end_session(self, request: Request) -> Response:
        session = self._session(request)
        match request.path_params["verb"]:
            case "kill":
                session.kill()
            case "close":
                session.close()
            case verb:
                raise ApiError(404, f"A session cannot {verb}: use kill or close.")
        return _json(session_json(session))

    def _session(self, request: Request) -> Session:
        session = self.github.runners.sessions.get(request.path_params["id"])
        if session is None:
            raise ApiError(404, "There is no such session.")
        return session

    def _owner(self, login: str) -> Owner:
        return self.github.accounts.owner(login)

    def _repository(self, full_name: str) -> Repository:
        owner, _, name = full_name.partition("/")
        return self.github.accounts.repository(owner, name)


def _spec(job: NewJob) -> JobSpec:
    return JobSpec(
        labels=job.labels,
        duration=job.duration,
        conclusion=job.conclusion,
        name=job.name,
        environment=job.environment,
        needs=job.needs,
        skipped=job.skipped,
    )


def _explained(endpoint: Endpoint) -> Endpoint:
    """Turn the errors of the model into responses."""

    @functools.wraps(endpoint)
    async def call(request: Request) -> Response:
        try:
            return await endpoint(request)
        except ApiError as error:
            return _json({"message": error.message}, error.status)
        except SessionRefused as error:
            return _json({"message": str(error)}, 409)
        except ValueError as error:
            return _json({"message": str(error)}, 422)

    return call


async def _read(request: Request, kind: type[Body]) -> Body:
    return msgspec.json.decode(await request.body() or b"{}", type=kind)


def _json(body: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(body), status, media_type="application/json")
