"""Values of the Helm chart: typos are rejected, and contradictions are explained."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
import yaml

from jobyard.config.sections import Configuration, RunnersSection
from jobyard.domain.runners.cluster import KubernetesCluster
from jobyard.domain.runners.profile import RunnerProfile, RunnerTimeouts
from tests.deploy.conftest import changed, example
from tests.deploy.helm import CHART, RELEASE, Outcome, Request, helm

NAME = f"{RELEASE}-jobyard"
SCHEMA = json.loads((CHART / "values.schema.json").read_text("utf-8"))
PROFILE = {"name": "linux", "labels": ["code-linux"]}

# Values on top of the minimal example, and a part of what Helm says about them.
REJECTED: Mapping[str, tuple[dict[str, Any], str]] = {
    "typo": ({"replica": 2}, "additional properties 'replica' not allowed"),
    "typo below": ({"redis": {"persistance": {"enabled": False}}}, "'persistance' not allowed"),
    "typo in runners": ({"runners": {"max_totl": 5}}, "'max_totl' not allowed"),
    "typo in a profile": ({"runners": {"profiles": [PROFILE | {"lables": []}]}}, "'lables' not allowed"),
    "typo in time-outs": ({"runners": {"profiles": [PROFILE | {"timeouts": {"iddle": 1}}]}}, "'iddle' not allowed"),
    "typo in a cluster": ({"runners": {"clusters": {"default": {"namspace": "a"}}}}, "'namspace' not allowed"),
    "a secret in runners": ({"runners": {"github_token": "x"}}, "'github_token' not allowed"),
    "webhook secrets in runners": ({"runners": {"webhook_secrets": ["x"]}}, "'webhook_secrets' not allowed"),
    "a store in config": ({"config": {"store": {"url": "redis://:x@y"}}}, "'store' not allowed"),
    "another port": ({"config": {"server": {"port": 1}}}, "/config/server/port"),
    "no labels": ({"runners": {"profiles": [{"name": "linux", "labels": []}]}}, "minItems"),
    "no name": ({"runners": {"profiles": [{"labels": ["a"]}]}}, "missing property 'name'"),
    "text for a number": ({"runners": {"max_total": "many"}}, "/runners/max_total"),
    "sqlite": ({"store": {"url": "sqlite:///jobs.db"}}, "/store/url"),
    "a token of another form": ({"secrets": {"adminToken": "secret"}}, "/secrets/adminToken"),
    "a key that is a path": ({"secrets": {"githubPrivateKey": "key.pem"}}, "/secrets/githubPrivateKey"),
    "mode": ({"mode": "all"}, "/mode"),
    "a secret of two lines": ({"secrets": {"webhookSecrets": ["a\nb"]}}, "/secrets/webhookSecrets/0"),
}
REFUSED: Mapping[str, tuple[dict[str, Any], str]] = {
    "no profile": ({"runners": {"profiles": []}}, "runners.profiles is empty"),
    "two of a name": (
        {"runners": {"profiles": [PROFILE, PROFILE]}},
        "Two profiles in runners.profiles are named linux",
    ),
    "unknown cluster": (
        {"runners": {"profiles": [PROFILE | {"cluster": "far"}]}},
        "names the cluster far, which is not",
    ),
    "no token": ({"secrets": {"githubToken": ""}}, "set secrets.githubToken or secrets.existingSecret"),
    "no key": (
        {"runners": {"github_app_id": 1}, "secrets": {"githubToken": ""}},
        "set secrets.githubPrivateKey or secrets.existingSecret",
    ),
    "both credentials": (
        {"secrets": {"githubPrivateKey": "-----BEGIN x"}},
        "secrets.githubPrivateKey is set but not used",
    ),
    "no webhook secret": ({"secrets": {"webhookSecrets": []}}, "set secrets.webhookSecrets"),
    "two sources of secrets": ({"secrets": {"existingSecret": "mine"}}, "secrets.existingSecret and other keys"),
    "two stores": ({"store": {"url": "redis://a", "existingSecret": "b"}}, "store.url and store.existingSecret"),
    "two passwords": ({"redis": {"password": "a", "existingSecret": "b"}}, "redis.password and redis.existingSecret"),
    "no host": ({"ingress": {"enabled": True}}, "ingress.enabled needs ingress.host"),
    "no token for metrics": ({"serviceMonitor": {"enabled": True}}, "needs serviceMonitor.tokenSecret"),
    "a quota for the manager": ({"resourceQuota": {"enabled": True}}, "would also count the pods of the release"),
    "no account": ({"serviceAccount": {"create": False}}, "set serviceAccount.name"),
    "separate without runners": ({"mode": "separate", "runners": {"enabled": False}}, "Set mode: up"),
}
WRONG = {**REJECTED, **REFUSED}


@pytest.fixture(scope="module")
def refused() -> dict[str, Outcome]:
    return dict(zip(WRONG, helm([Request(changed(changes)) for changes, _ in WRONG.values()]), strict=True))


@pytest.mark.parametrize("name", WRONG)
def test_wrong_values_are_refused_with_a_reason(name: str, refused: dict[str, Outcome]) -> None:
    assert WRONG[name][1] in refused[name].error


def test_every_key_is_explained() -> None:
    text = (CHART / "values.yaml").read_text("utf-8")
    known = _properties(SCHEMA) - {"global"}  # Helm adds that one
    assert [key for key in sorted(known) if not re.search(rf"\b{key}\b", text)] == []


def _properties(schema: Any) -> set[str]:
    found: set[str] = set()
    if isinstance(schema, dict):
        found |= set(schema.get("properties", {}))
        for below in schema.values():
            found |= _properties(below)
    elif isinstance(schema, list):
        for below in schema:
            found |= _properties(below)
    return found


def test_the_schema_knows_the_fields_of_jobyard() -> None:
    runners = SCHEMA["properties"]["runners"]["properties"]
    # Secrets are given elsewhere, and so is the certificate authority, which is mounted.
    absent = {"github_token", "github_private_key", "webhook_secrets", "github_ca_file"}
    assert set(runners) == set(RunnersSection.__struct_fields__) - absent
    profile = runners["profiles"]["items"]["properties"]
    assert set(profile) == set(RunnerProfile.__struct_fields__)
    assert set(profile["timeouts"]["properties"]) == set(RunnerTimeouts.__struct_fields__)
    cluster = set(runners["clusters"]["additionalProperties"]["properties"])
    # The chart mounts a kubeconfig and says where it is.
    assert cluster - {"kubeconfigSecret", "kubeconfigKey"} == set(KubernetesCluster.__struct_fields__) - {"kubeconfig"}
    assert set(SCHEMA["properties"]["config"]["properties"]) == set(Configuration.__struct_fields__) - {
        "store",
        "runners",
    }
    msgspec.convert(example("profiles")["runners"]["profiles"], list[RunnerProfile])


def test_the_defaults_are_those_of_jobyard() -> None:
    given = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))["runners"]
    own = {"instance", "clusters", "profiles"}  # filled in by the chart, or by the user
    defaults = RunnersSection()
    assert {key: value for key, value in given.items() if key not in own} == {
        key: getattr(defaults, key) for key in given.keys() - own
    }
