"""REST routes of the App, its installations and tokens, repositories, hooks and their deliveries."""

from __future__ import annotations

from jobyard.demo.fake_github.accounts_json import Json, timestamp
from jobyard.demo.fake_github.auth import ANY, APP, Access
from jobyard.demo.fake_github.calls import ApiResponse, Call, Route, reply
from jobyard.demo.fake_github.deliveries import Delivery, delivery_detail_json, delivery_json
from jobyard.demo.fake_github.entities import Hook, Installation, Owner, Token
from jobyard.demo.fake_github.errors import ApiError, not_found


def get_meta(call: Call) -> ApiResponse:
    return reply({"verifiable_password_authentication": True, "installed_version": call.github.core.version})


def get_app(call: Call) -> ApiResponse:
    accounts = call.github.accounts
    return reply(call.github.core.accounts_json.app(accounts.app, len(accounts.installations)))


def list_installations(call: Call) -> ApiResponse:
    page, headers = call.page(
        list(call.github.accounts.installations.values()), lambda each: _installation_json(call, each)
    )
    return reply(page, headers=headers)


def get_installation(call: Call) -> ApiResponse:
    return reply(_installation_json(call, _installation(call)))


def get_organization_installation(call: Call) -> ApiResponse:
    return _installation_of(call, call.organization())


def get_repository_installation(call: Call) -> ApiResponse:
    return _installation_of(call, call.repository().owner)


def create_installation_token(call: Call) -> ApiResponse:
    permissions = call.json().get("permissions")
    token = call.github.accounts.create_installation_token(_installation(call), permissions)
    assert token.expires_at is not None
    body = {
        "token": token.value,
        "expires_at": timestamp(token.expires_at),
        "permissions": token.permissions,
        "repository_selection": "all",
    }
    return reply(body, 201)


def list_installation_repositories(call: Call) -> ApiResponse:
    principal = call.principal
    if not isinstance(principal, Token) or principal.installation is None:
        raise ApiError(403, "You must authenticate with an installation access token in order to list repositories.")
    repositories = list(principal.installation.owner.repositories.values())
    page, headers = call.page(repositories, call.github.core.accounts_json.repository)
    body = {"total_count": len(repositories), "repository_selection": "all", "repositories": page}
    return reply(body, headers=headers)


def list_organization_repositories(call: Call) -> ApiResponse:
    repositories = list(call.organization().repositories.values())
    page, headers = call.page(repositories, call.github.core.accounts_json.minimal_repository)
    return reply(page, headers=headers)


def list_organization_hooks(call: Call) -> ApiResponse:
    owner = call.organization()
    hooks = [
        hook for hook in call.github.webhooks.hooks.values() if hook.scope == "organization" and hook.owner is owner
    ]
    page, headers = call.page(hooks, call.github.core.accounts_json.hook)
    return reply(page, headers=headers)


def list_deliveries(call: Call) -> ApiResponse:
    found = call.github.webhooks.of_hook(_hook(call))
    match call.request.query.get("status"):
        case "success":
            found = [delivery for delivery in found if delivery.succeeded]
        case "failure":
            found = [delivery for delivery in found if not delivery.succeeded]
        case None:
            pass
        case other:
            raise ApiError(422, "Validation Failed", errors=[{"field": "status", "code": "invalid", "value": other}])
    page, headers = call.cursor_page(found, delivery_json)
    return reply(page, headers=headers)


def get_delivery(call: Call) -> ApiResponse:
    return reply(delivery_detail_json(_delivery(call)))


def redeliver(call: Call) -> ApiResponse:
    call.github.webhooks.redeliver(_delivery(call))
    return reply({}, 202)


def _hook(call: Call) -> Hook:
    if "hook_id" not in call.params:
        hook = call.github.accounts.app.hook
        if hook is None:
            raise not_found()
        return hook
    hook = call.github.webhooks.hooks.get(call.number("hook_id"))
    if hook is None:
        raise not_found()
    if "org" in call.params:
        belongs = hook.scope == "organization" and hook.owner is call.organization()
    else:
        belongs = hook.scope == "repository" and hook.repository is call.repository()
    if not belongs:
        raise not_found()
    return hook


def _delivery(call: Call) -> Delivery:
    number = call.number("delivery_id")
    for delivery in call.github.webhooks.of_hook(_hook(call)):
        if delivery.id == number:
            return delivery
    raise not_found()


def _installation(call: Call) -> Installation:
    installation = call.github.accounts.installations.get(call.number("installation_id"))
    if installation is None:
        raise not_found()
    return installation


def _installation_of(call: Call, owner: Owner) -> ApiResponse:
    installation = call.github.accounts.installation_of(owner)
    if installation is None:
        raise not_found()
    return reply(_installation_json(call, installation))


def _installation_json(call: Call, installation: Installation) -> Json:
    return call.github.core.accounts_json.installation(call.github.accounts.app, installation)


ORG_HOOKS_READ = Access(permission="organization_hooks", level="read", scope="admin:org_hook")
ORG_HOOKS_WRITE = Access(permission="organization_hooks", level="write", scope="admin:org_hook")
REPO_HOOKS_READ = Access(permission="repository_hooks", level="read", scope="read:repo_hook")
REPO_HOOKS_WRITE = Access(permission="repository_hooks", level="write", scope="write:repo_hook")

_APP_LOG = "/app/hook/deliveries"
_ORG_LOG = "/orgs/{org}/hooks/{hook_id}/deliveries"
_REPO_LOG = "/repos/{owner}/{repo}/hooks/{hook_id}/deliveries"
ROUTES = [
    Route("GET", "/meta", ANY, get_meta),
    Route("GET", "/app", APP, get_app),
    Route("GET", "/app/installations", APP, list_installations),
    Route("GET", "/app/installations/{installation_id}", APP, get_installation),
    Route("POST", "/app/installations/{installation_id}/access_tokens", APP, create_installation_token),
    Route("GET", "/orgs/{org}/installation", APP, get_organization_installation),
    Route("GET", "/repos/{owner}/{repo}/installation", APP, get_repository_installation),
    Route("GET", "/installation/repositories", ANY, list_installation_repositories),
    Route("GET", "/orgs/{org}/repos", ANY, list_organization_repositories),
    Route("GET", "/orgs/{org}/hooks", ORG_HOOKS_READ, list_organization_hooks),
    *(
        route
        for log, read, write in (
            (_APP_LOG, APP, APP),
            (_ORG_LOG, ORG_HOOKS_READ, ORG_HOOKS_WRITE),
            (_REPO_LOG, REPO_HOOKS_READ, REPO_HOOKS_WRITE),
        )
        for route in (
            Route("GET", log, read, list_deliveries),
            Route("GET", f"{log}/{{delivery_id}}", read, get_delivery),
            Route("POST", f"{log}/{{delivery_id}}/attempts", write, redeliver),
        )
    ),
]
