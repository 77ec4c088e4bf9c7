"""JSON of runs, jobs, runners and `workflow_job` events."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from jobyard.demo.fake_github.accounts_json import AccountsJson, Json, node_id, timestamp
from jobyard.demo.fake_github.entities import Deployment, Installation, Job, Repository, Run, Runner

READ_ONLY_LABELS = frozenset({"self-hosted", "linux", "x64", "arm64", "macos", "windows"})
RUNNER_VERSION = "2.336.0"


class ActionsJson:
    def __init__(self, accounts: AccountsJson) -> None:
        self._accounts = accounts
        self._encoded: dict[tuple[str, int, bool], msgspec.Raw] = {}

    def runner(self, runner: Runner) -> Json:
        return {
            "id": runner.id,
            "runner_group_id": runner.group.id,
            "name": runner.name,
            "os": "Linux" if runner.connected else "unknown",
            "status": runner.status,
            "busy": runner.busy,
            "labels": [
                {
                    "id": number,
                    "name": label,
                    "type": "read-only" if label.lower() in READ_ONLY_LABELS else "custom",
                }
                for number, label in enumerate(runner.labels, 1)
            ],
            "ephemeral": True,
            "version": RUNNER_VERSION if runner.connected else None,
        }

    def job(self, job: Job) -> Json:
        api, html = self._urls(job.repository)
        runner = job.runner_named
        return {
            "id": job.id,
            "run_id": job.run.id,
            "workflow_name": job.run.workflow_name,
            "head_branch": job.run.head_branch,
            "run_url": f"{api}/actions/runs/{job.run.id}",
            "run_attempt": job.attempt,
            "node_id": node_id("CR", job.id),
            "head_sha": job.run.head_sha,
            "url": f"{api}/actions/jobs/{job.id}",
            "html_url": f"{html}/actions/runs/{job.run.id}/job/{job.id}",
            "status": job.status,
            "conclusion": job.conclusion,
            "created_at": timestamp(job.created_at),
            "started_at": timestamp(job.started_at if job.started_at is not None else job.created_at),
            "completed_at": None if job.completed_at is None else timestamp(job.completed_at),
            "name": job.name,
            "steps": self._steps(job),
            "check_run_url": f"{api}/check-runs/{job.id}",
            "labels": list(job.spec.labels),
            "runner_id": runner.id if runner else None,
            "runner_name": runner.name if runner else None,
            "runner_group_id": runner.group_id if runner else None,
            "runner_group_name": runner.group_name if runner else None,
        }

    def run(self, run: Run, status: str, conclusion: str | None) -> Json:
        api, html = self._urls(run.repository)
        url = f"{api}/actions/runs/{run.id}"
        suite = run.id + 1
        person = {"name": "Octo Developer", "email": "developer@example.com"}
        repository = self._accounts.minimal_repository(run.repository)
        earlier = f"{url}/attempts/{run.attempt - 1}" if run.attempt > 1 else None
        return {
            "id": run.id,
            "name": run.workflow_name,
            "node_id": node_id("WFR", run.id),
            "check_suite_id": suite,
            "check_suite_node_id": node_id("CS", suite),
            "head_branch": run.head_branch,
            "head_sha": run.head_sha,
            "path": ".github/workflows/ci.yml@main",
            "run_number": run.number,
            "run_attempt": run.attempt,
            "referenced_workflows": [],
            "event": run.event,
            "display_title": "Update README.md",
            "status": status,
            "conclusion": conclusion,
            "workflow_id": run.repository.id * 10,
            "url": url,
            "html_url": f"{html}/actions/runs/{run.id}",
            "pull_requests": [],
            "created_at": timestamp(run.created_at),
            "updated_at": timestamp(run.updated_at),
            "actor": self._accounts.sender(),
            "triggering_actor": self._accounts.sender(),
            "run_started_at": timestamp(run.started_at),
            "jobs_url": f"{url}/jobs",
            "logs_url": f"{url}/logs",
            "check_suite_url": f"{api}/check-suites/{suite}",
            "artifacts_url": f"{url}/artifacts",
            "cancel_url": f"{url}/cancel",
            "rerun_url": f"{url}/rerun",
            "previous_attempt_url": earlier,
            "workflow_url": f"{api}/actions/workflows/{run.repository.id * 10}",
            "head_commit": {
                "id": run.head_sha,
                "tree_id": run.head_sha[::-1],
                "message": "Update README.md",
                "timestamp": timestamp(run.created_at),
                "author": person,
                "committer": person,
            },
            "repository": repository,
            "head_repository": repository,
        }

    def event(
        self,
        repository: Repository,
        action: str,
        job: Json | None,
        *,
        deployment: Json | None = None,
        installation: Installation | None = None,
        organization: bool = True,
    ) -> Json:
        """The body of a `workflow_job` webhook."""
        body: Json = {
            "action": action,
            "workflow_job": job,
            "repository": self._once("repository", repository, self._accounts.repository),
            "sender": self._once("sender", repository, lambda _: self._accounts.sender()),
        }
        if deployment is not None:
            body["deployment"] = deployment
        if organization and repository.owner.type == "Organization":
            body["organization"] = self._once(
                "organization", repository, lambda each: self._accounts.organization(each.owner)
            )
        if installation is not None:
            body["installation"] = {"id": installation.id, "node_id": node_id("MDI", installation.id)}
        return body

    def event_job(self, job: Job, status: str | None = None) -> Json:
        """A job as events show it: they do not know the status `pending`."""
        body = self.job(job)
        body["status"] = status or ("queued" if job.status == "pending" else job.status)
        return body

    def deployment(self, job: Job, deployment: Deployment) -> Json:
        api, _ = self._urls(job.repository)
        url = f"{api}/deployments/{deployment.id}"
        return {
            "url": url,
            "id": deployment.id,
            "node_id": node_id("DE", deployment.id),
            "task": "deploy",
            "original_environment": deployment.environment,
            "environment": deployment.environment,
            "description": None,
            "created_at": timestamp(deployment.created_at),
            "updated_at": timestamp(deployment.updated_at),
            "statuses_url": f"{url}/statuses",
            "repository_url": api,
            "creator": self._accounts.sender(),
            "sha": job.run.head_sha,
            "ref": job.run.head_branch,
            "payload": {},
            "transient_environment": False,
            "production_environment": False,
            "performed_via_github_app": None,
        }

    def foreign_job(self, repository: Repository, number: int, name: str, at: float) -> Json:
        """A check run that another program created through the API: no labels, no runner, no workflow."""
        api, html = self._urls(repository)
        run = number + 1
        return {
            "id": number,
            "run_id": run,
            "workflow_name": None,
            "head_branch": "main",
            "run_url": f"{api}/actions/runs/{run}",
            "run_attempt": 1,
            "node_id": node_id("CR", number),
            "head_sha": "0" * 40,
            "url": f"{api}/actions/jobs/{number}",
            "html_url": f"{html}/runs/{number}",
            "status": "completed",
            "conclusion": "success",
            "created_at": timestamp(at),
            "started_at": timestamp(at),
            "completed_at": timestamp(at),
            "name": name,
            "steps": [],
            "check_run_url": f"{api}/check-runs/{number}",
            "labels": [],
            "runner_id": None,
            "runner_name": None,
            "runner_group_id": None,
            "runner_group_name": None,
        }

    def _once(self, kind: str, repository: Repository, build: Callable[[Repository], Json]) -> msgspec.Raw:
        """The parts that all events of a repository share, encoded once: they are most of the bytes."""
        key = (kind, repository.id, repository.private)
        if key not in self._encoded:
            self._encoded[key] = msgspec.Raw(msgspec.json.encode(build(repository)))
        return self._encoded[key]

    def _steps(self, job: Job) -> list[Json]:
        if job.started_at is None:
            return []
        done = job.status == "completed"
        allowed = job.conclusion in {"success", "failure", "cancelled", "skipped"}
        return [
            {
                "name": "Set up job",
                "status": "completed" if done else "in_progress",
                "conclusion": (job.conclusion if allowed else "failure") if done else None,
                "number": 1,
                "started_at": timestamp(job.started_at),
                "completed_at": None if job.completed_at is None else timestamp(job.completed_at),
            }
        ]

    def _urls(self, repository: Repository) -> tuple[str, str]:
        name = repository.full_name
        return f"{self._accounts.api}/repos/{name}", f"{self._accounts.html}/{name}"
