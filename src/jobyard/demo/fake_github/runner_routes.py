"""REST routes of runners and runner groups."""

from __future__ import annotations

from typing import Any

from jobyard.demo.fake_github.accounts_json import Json
from jobyard.demo.fake_github.auth import Access
from jobyard.demo.fake_github.calls import ApiResponse, Call, Route, reply
from jobyard.demo.fake_github.entities import Owner, Repository, Runner, RunnerGroup
from jobyard.demo.fake_github.errors import ApiError, not_found

KEYS: dict[str, type] = {"name": str, "runner_group_id": int, "labels": list, "work_folder": str}
REQUIRED = ("name", "runner_group_id", "labels")
ARTICLES = {str: "a string", int: "an integer", list: "an array"}


def _scope(call: Call) -> tuple[Owner, Repository | None]:
    if "org" in call.params:
        return call.organization(), None
    repository = call.repository()
    return repository.owner, repository


def _validated(body: dict[str, Any]) -> dict[str, Any]:
    """Check the body as GitHub's own schema does; unknown keys are refused too."""
    for key in REQUIRED:
        if key not in body:
            raise ApiError(422, f"Invalid request.\n\nInvalid input: object is missing required key: {key}.")
    for key, value in body.items():
        kind = KEYS.get(key)
        if kind is None:
            raise ApiError(422, f'Invalid request.\n\n"{key}" is not a permitted key.')
        if not isinstance(value, kind) or isinstance(value, bool):
            raise ApiError(422, f"Invalid request.\n\nFor 'properties/{key}', {value!r} is not {ARTICLES[kind]}.")
    if not all(isinstance(label, str) for label in body["labels"]):
        raise ApiError(422, "Invalid request.\n\nFor 'properties/labels', an item is not a string.")
    return body


def generate_jitconfig(call: Call) -> ApiResponse:
    owner, repository = _scope(call)
    runner, encoded = call.github.runners.generate_jitconfig(owner, repository, **_validated(call.json()))
    body = {"runner": call.github.core.actions_json.runner(runner), "encoded_jit_config": encoded}
    return reply(body, 201)


def list_runners(call: Call) -> ApiResponse:
    return _runners(call, call.github.runners.of_scope(*_scope(call)))


def list_group_runners(call: Call) -> ApiResponse:
    owner, group = call.organization(), _group(call)
    return _runners(call, [each for each in call.github.runners.of_scope(owner, None) if each.group is group])


def _runners(call: Call, runners: list[Runner]) -> ApiResponse:
    name = call.request.query.get("name")
    found = [runner for runner in runners if name is None or runner.name == name]
    page, headers = call.page(found, call.github.core.actions_json.runner)
    return reply({"total_count": len(found), "runners": page}, headers=headers)


def get_runner(call: Call) -> ApiResponse:
    return reply(call.github.core.actions_json.runner(_runner(call)))


def delete_runner(call: Call) -> ApiResponse:
    call.github.runners.delete(_runner(call))
    return ApiResponse(status=204)


def _runner(call: Call) -> Runner:
    return call.github.runners.get(*_scope(call), call.number("runner_id"))


def list_groups(call: Call) -> ApiResponse:
    owner = call.organization()
    groups = list(owner.groups.values())
    visible_to = call.request.query.get("visible_to_repository")
    if visible_to is not None:
        repository = call.github.accounts.repository(owner.login, visible_to)
        groups = [group for group in groups if _visible(group, repository)]

    def to_json(group: RunnerGroup) -> Json:
        return call.github.core.accounts_json.group(owner, group)

    page, headers = call.page(groups, to_json)
    return reply({"total_count": len(groups), "runner_groups": page}, headers=headers)


def _visible(group: RunnerGroup, repository: Repository) -> bool:
    # Visibility alone: a public repository sees groups that would not run its jobs.
    return group.visibility != "selected" or repository in group.repositories


def get_group(call: Call) -> ApiResponse:
    return reply(call.github.core.accounts_json.group(call.organization(), _group(call)))


def list_group_repositories(call: Call) -> ApiResponse:
    repositories = _group(call).repositories
    page, headers = call.page(repositories, call.github.core.accounts_json.minimal_repository)
    return reply({"total_count": len(repositories), "repositories": page}, headers=headers)


def _group(call: Call) -> RunnerGroup:
    group = call.organization().groups.get(call.number("runner_group_id"))
    if group is None:
        raise not_found()
    return group


ORG_READ = Access(permission="organization_self_hosted_runners", level="read", scope="admin:org")
ORG_WRITE = Access(permission="organization_self_hosted_runners", level="write", scope="admin:org")
REPO_READ = Access(permission="administration", level="read", scope="repo")
REPO_WRITE = Access(permission="administration", level="write", scope="repo")

_ORG = "/orgs/{org}/actions/runners"
_REPO = "/repos/{owner}/{repo}/actions/runners"
_GROUPS = "/orgs/{org}/actions/runner-groups"
ROUTES = [
    Route("POST", f"{_ORG}/generate-jitconfig", ORG_WRITE, generate_jitconfig),
    Route("GET", _ORG, ORG_READ, list_runners),
    Route("GET", f"{_ORG}/{{runner_id}}", ORG_READ, get_runner),
    Route("DELETE", f"{_ORG}/{{runner_id}}", ORG_WRITE, delete_runner),
    Route("POST", f"{_REPO}/generate-jitconfig", REPO_WRITE, generate_jitconfig),
    Route("GET", _REPO, REPO_READ, list_runners),
    Route("GET", f"{_REPO}/{{runner_id}}", REPO_READ, get_runner),
    Route("DELETE", f"{_REPO}/{{runner_id}}", REPO_WRITE, delete_runner),
    Route("GET", _GROUPS, ORG_READ, list_groups),
    Route("GET", f"{_GROUPS}/{{runner_group_id}}", ORG_READ, get_group),
    Route("GET", f"{_GROUPS}/{{runner_group_id}}/repositories", ORG_READ, list_group_repositories),
    Route("GET", f"{_GROUPS}/{{runner_group_id}}/runners", ORG_READ, list_group_runners),
]
