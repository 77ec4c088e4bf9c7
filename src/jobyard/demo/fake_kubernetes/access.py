"""Who sends a request, and what role-based access control lets them do."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec

from jobyard.demo.fake_kubernetes import errors
from jobyard.demo.fake_kubernetes.errors import JsonObject
from jobyard.demo.fake_kubernetes.resources import RESOURCES, Resource
from jobyard.demo.fake_kubernetes.storage import Storage

API_AUDIENCE = "https://kubernetes.default.svc.cluster.local"


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Verbs on resources (`pods`, `pods/status`; `*` for all), in one namespace or, with None, everywhere."""

    verbs: tuple[str, ...]
    resources: tuple[str, ...]
    namespace: str | None = None

    def allows(self, verb: str, resource: str, namespace: str | None) -> bool:
        return (
            ("*" in self.verbs or verb in self.verbs)
            and ("*" in self.resources or resource in self.resources)
            and (self.namespace is None or self.namespace == namespace)
        )


class User(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A user with the rules that apply to it; `rules` None allows everything."""

    name: str
    rules: tuple[Rule, ...] | None = None
    uid: str = ""
    groups: tuple[str, ...] = ("system:authenticated",)

    def may(self, verb: str, resource: str, namespace: str | None) -> bool:
        return self.rules is None or any(rule.allows(verb, resource, namespace) for rule in self.rules)


class _PodToken(msgspec.Struct, frozen=True):
    namespace: str
    account: str
    pod: str
    pod_uid: str
    audiences: tuple[str, ...]
    expires_at: float


def authorize(
    user: User | None, verb: str, resource: Resource, namespace: str | None, name: str, subresource: str
) -> None:
    """Raise 403 unless the user may do this; None is the cluster's administrator."""
    asked = f"{resource.plural}/{subresource}" if subresource else resource.plural
    # Every authenticated user may ask what it may do.
    if user is None or resource.plural == "selfsubjectaccessreviews" or user.may(verb, asked, namespace):
        return
    where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
    cause = f'User "{user.name}" cannot {verb} resource "{asked}" in API group "{resource.group}" {where}'
    raise errors.forbidden(resource.plural, name, cause, resource.group)


class Tokens:
    """Bearer tokens: configured ones, and those that are projected into pods."""

    def __init__(self, storage: Storage, clock: Callable[[], float], rng: random.Random) -> None:
        self._storage = storage
        self._clock = clock
        self._rng = rng
        self._users: dict[str, User] = {}
        self._pod_tokens: dict[str, _PodToken] = {}

    def add(self, token: str, user: User) -> None:
        self._users[token] = user

    @property
    def required(self) -> bool:
        """Without configured tokens every request over HTTP is the administrator's."""
        return bool(self._users)

    def issue(self, pod: JsonObject, audience: str | None, seconds: float) -> str:
        """A service account token that is bound to a pod and dies with it."""
        token = f"fake-token-{self._rng.getrandbits(128):032x}"
        metadata = pod["metadata"]
        audiences = (audience or API_AUDIENCE,)
        account = pod["spec"].get("serviceAccountName", "default")
        self._pod_tokens[token] = _PodToken(
            metadata["namespace"], account, metadata["name"], metadata["uid"], audiences, self._clock() + seconds
        )
        return token

    def authenticate(self, token: str) -> User:
        if user := self._users.get(token):
            return user
        found = self._valid_pod_token(token)
        if found is None or API_AUDIENCE not in found.audiences:
            raise errors.unauthorized()
        return User(name=f"system:serviceaccount:{found.namespace}:{found.account}", rules=())

    def _valid_pod_token(self, token: str) -> _PodToken | None:
        found = self._pod_tokens.get(token)
        if found is None or found.expires_at <= self._clock():
            return None
        pod = self._storage.get("pods", (found.namespace, found.pod))
        return found if pod is not None and pod["metadata"]["uid"] == found.pod_uid else None

    def review_token(self, body: JsonObject) -> JsonObject:
        """The status of a TokenReview."""
        spec = body.get("spec") or {}
        token = spec.get("token") or ""
        wanted = tuple(spec.get("audiences") or (API_AUDIENCE,))
        if user := self._users.get(token):
            return {"authenticated": True, "user": _user_info(user), "audiences": [API_AUDIENCE]}
        found = self._valid_pod_token(token)
        if found is None:
            return {"user": {}, "error": "[invalid bearer token, service account token has been invalidated]"}
        if not (audiences := [each for each in found.audiences if each in wanted]):
            return {"user": {}, "error": "[invalid bearer token, token audiences are not valid for this request]"}
        return {"authenticated": True, "user": self._pod_user(found), "audiences": audiences}

    def _pod_user(self, token: _PodToken) -> JsonObject:
        account = self._storage.get("serviceaccounts", (token.namespace, token.account))
        return {
            "username": f"system:serviceaccount:{token.namespace}:{token.account}",
            "uid": (account or {"metadata": {}})["metadata"].get("uid", ""),
            "groups": [
                "system:serviceaccounts",
                f"system:serviceaccounts:{token.namespace}",
                "system:authenticated",
            ],
            "extra": {
                "authentication.kubernetes.io/pod-name": [token.pod],
                "authentication.kubernetes.io/pod-uid": [token.pod_uid],
            },
        }


def _user_info(user: User) -> JsonObject:
    return {"username": user.name, "uid": user.uid, "groups": list(user.groups)}


def review_access(user: User | None, body: Any) -> JsonObject:
    """The status of a SelfSubjectAccessReview."""
    asked = (body.get("spec") or {}).get("resourceAttributes") or {}
    plural, subresource = asked.get("resource", ""), asked.get("subresource", "")
    known = RESOURCES.get(plural)
    if known is not None and known.group != asked.get("group", "") and asked.get("group") != "*":
        return {"allowed": user is None or user.rules is None, "reason": ""}
    resource = f"{plural}/{subresource}" if subresource else plural
    allowed = user is None or user.may(asked.get("verb", ""), resource, asked.get("namespace") or None)
    return {"allowed": allowed, "reason": "RBAC: allowed by a rule of this token" if allowed else ""}
