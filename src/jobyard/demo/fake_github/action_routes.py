"""REST routes of workflow runs and jobs."""

from __future__ import annotations

from jobyard.demo.fake_github.accounts_json import Json
from jobyard.demo.fake_github.auth import Access
from jobyard.demo.fake_github.calls import ApiResponse, Call, Route, reply
from jobyard.demo.fake_github.entities import Job, Run
from jobyard.demo.fake_github.errors import ApiError, not_found

# A search with a filter ends here, whatever the number of runs.
MOST_FILTERED = 1000
STATUSES = {"completed", "in_progress", "queued", "requested", "waiting", "pending"}
CONCLUSIONS = {"action_required", "cancelled", "failure", "neutral", "skipped", "stale", "success", "timed_out"}


def get_job(call: Call) -> ApiResponse:
    job = call.github.jobs.jobs.get(call.number("job_id"))
    if job is None or job.repository is not call.repository():
        raise not_found()
    return reply(call.github.core.actions_json.job(job))


def get_run(call: Call) -> ApiResponse:
    return reply(_run_json(call, _run(call)))


def list_runs(call: Call) -> ApiResponse:
    repository, query = call.repository(), call.request.query
    status, event, branch, sha = (query.get(name) for name in ("status", "event", "branch", "head_sha"))
    if status is not None and status not in STATUSES | CONCLUSIONS:
        raise ApiError(422, "Invalid request.\n\nstatus is not a valid status.")
    if {"created", "actor", "check_suite_id"} & set(query):
        raise ApiError(422, "The fake does not filter by created, actor or check_suite_id.")

    def wanted(run: Run) -> bool:
        return (
            run.repository is repository
            and (status is None or status in call.github.jobs.status(run))
            and (event is None or run.event == event)
            and (branch is None or run.head_branch == branch)
            and (sha is None or run.head_sha == sha)
        )

    found = [run for run in reversed(call.github.jobs.runs.values()) if wanted(run)]
    if status or event or branch or sha:
        found = found[:MOST_FILTERED]
    page, headers = call.page(found, lambda run: _run_json(call, run))
    return reply({"total_count": len(found), "workflow_runs": page}, headers=headers)


def list_run_jobs(call: Call) -> ApiResponse:
    run = _run(call)
    return _jobs(call, run.jobs if call.request.query.get("filter") == "all" else run.latest())


def list_attempt_jobs(call: Call) -> ApiResponse:
    attempt = call.number("attempt_number")
    return _jobs(call, [job for job in _run(call).jobs if job.attempt == attempt])


def _jobs(call: Call, jobs: list[Job]) -> ApiResponse:
    page, headers = call.page(jobs, call.github.core.actions_json.job)
    return reply({"total_count": len(jobs), "jobs": page}, headers=headers)


def cancel_run(call: Call) -> ApiResponse:
    run = _run(call)
    if call.github.jobs.status(run)[0] == "completed":
        raise ApiError(409, "Cannot cancel a workflow run that is completed.")
    call.github.jobs.cancel_run(run)
    return reply({}, 202)


def rerun(call: Call) -> ApiResponse:
    return _rerun(call, failed_only=False)


def rerun_failed_jobs(call: Call) -> ApiResponse:
    return _rerun(call, failed_only=True)


def _rerun(call: Call, *, failed_only: bool) -> ApiResponse:
    try:
        call.github.jobs.rerun(_run(call), failed_only=failed_only)
    except ValueError as error:
        raise ApiError(403, "This workflow is already running") from error
    return reply({}, 201)


def _run(call: Call) -> Run:
    run = call.github.jobs.runs.get(call.number("run_id"))
    if run is None or run.repository is not call.repository():
        raise not_found()
    return run


def _run_json(call: Call, run: Run) -> Json:
    return call.github.core.actions_json.run(run, *call.github.jobs.status(run))


READ = Access(permission="actions", level="read", scope="repo")
WRITE = Access(permission="actions", level="write", scope="repo")

_ACTIONS = "/repos/{owner}/{repo}/actions"
_RUN = f"{_ACTIONS}/runs/{{run_id}}"
ROUTES = [
    Route("GET", f"{_ACTIONS}/jobs/{{job_id}}", READ, get_job),
    Route("GET", f"{_ACTIONS}/runs", READ, list_runs),
    Route("GET", _RUN, READ, get_run),
    Route("GET", f"{_RUN}/jobs", READ, list_run_jobs),
    Route("GET", f"{_RUN}/attempts/{{attempt_number}}/jobs", READ, list_attempt_jobs),
    Route("POST", f"{_RUN}/cancel", WRITE, cancel_run),
    Route("POST", f"{_RUN}/rerun", WRITE, rerun),
    Route("POST", f"{_RUN}/rerun-failed-jobs", WRITE, rerun_failed_jobs),
]
