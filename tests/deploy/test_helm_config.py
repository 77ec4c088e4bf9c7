"""What the pods of the Helm chart read: accepted by jobyard itself, from the files that are mounted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from jobyard.config.load import LoadedConfig, load
from jobyard.config.settings import unknown_variables
from jobyard.config.store_factory import make_store
from jobyard.domain.runners.cluster import KubernetesCluster
from tests.deploy.conftest import EXAMPLES, example
from tests.deploy.helm import RELEASE, Outcome
from tests.deploy.objects import Object, mounted_files, of_kind, one, secret_data, title, variables

NAME = f"{RELEASE}-jobyard"
MOUNTED = "/etc/jobyard/"
# What users put into their own Secrets, by the name of the mounted file.
OF_USERS = {
    "admin-token": "jy_0123456789ab_exampleexampleexample1",
    "github-token": "ghp_example",
    "github-private-key": "-----BEGIN RSA PRIVATE KEY-----\nZXhhbXBsZQ==\n-----END RSA PRIVATE KEY-----\n",
    "webhook-secrets": "one\ntwo\n",
    "store-url": "postgresql://jobyard:example@db.example.com/jobs",
    "redis-password": "example",
}


def mount(folder: Path, deployment: Object, objects: list[Object]) -> dict[str, str]:
    """Write the files of a pod below `folder`, and return its environment with paths there."""
    by_title = {title(each): each for each in objects}
    for path, source in mounted_files(deployment, objects).items():
        text = OF_USERS.get(Path(path).name, "")
        if source is not None:
            found = by_title[source[0]]
            data = secret_data(found) if found["kind"] == "Secret" else found["data"]
            text = data[source[1]].replace(MOUNTED, f"{folder}/")
        file = folder / path.removeprefix(MOUNTED)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return {name: value.replace(MOUNTED, f"{folder}/") for name, value in variables(deployment).items()}


def loaded(folder: Path, deployment: Object, objects: list[Object]) -> tuple[LoadedConfig, dict[str, str]]:
    environment = mount(folder, deployment, objects)
    return load(environment, environment["JOBYARD_CONFIG"]), environment


@pytest.mark.parametrize("name", EXAMPLES)
def test_jobyard_accepts_the_configuration(name: str, rendered: dict[str, Outcome], tmp_path: Path) -> None:
    objects = rendered[name].objects
    for deployment in of_kind(objects, "Deployment"):
        found, environment = loaded(tmp_path / deployment["metadata"]["name"], deployment, objects)
        assert unknown_variables(environment) == []
        server = found.configuration.server
        assert (server.host, server.port, server.lame_duck_seconds) == ("0.0.0.0", 8080, 5)
        assert found.configuration.log.format == "json"


@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("minimal", f"redis://{NAME}-redis:6379/0"),
        ("postgres", "postgresql://jobyard:example-password@db.example.com/jobs?sslmode=verify-full"),
        ("ha", OF_USERS["store-url"]),
    ],
)
def test_the_store_is_the_one_of_the_values(name: str, url: str, rendered: dict[str, Outcome], tmp_path: Path) -> None:
    objects = rendered[name].objects
    found, environment = loaded(tmp_path, one(objects, "Deployment", NAME), objects)
    assert found.configuration.store.url == url
    make_store(url)
    assert ("REDIS_PASSWORD_FILE" in environment) == (name == "minimal")


def test_sections_of_the_values_are_passed_on(rendered: dict[str, Outcome], tmp_path: Path) -> None:
    objects = rendered["no-runners"].objects
    found, _ = loaded(tmp_path, one(objects, "Deployment", NAME), objects)
    assert found.configuration.worker.app == "shop.jobs:yard"
    assert found.configuration.queues == {"mail": {"max_running": 4}}


def test_credentials_and_secrets_reach_the_runner_manager(rendered: dict[str, Outcome], tmp_path: Path) -> None:
    found = {}
    for name in ("minimal", "app", "ha"):
        objects = rendered[name].objects
        found[name] = loaded(tmp_path / name, one(objects, "Deployment", NAME), objects)[0].configuration.runners
    assert (found["minimal"].github_token, found["minimal"].github_app_id) == ("ghp_example", None)
    app = example("app")
    assert found["app"].github_app_id == app["runners"]["github_app_id"]
    assert found["app"].github_private_key == app["secrets"]["githubPrivateKey"].strip()
    assert list(found["app"].webhook_secrets) == app["secrets"]["webhookSecrets"]
    assert found["app"].github_token is None
    assert found["app"].org_limits == {"acme": 25, "beta": 50}
    assert (found["ha"].github_token, found["ha"].webhook_secrets) == ("ghp_example", ("one", "two"))


def test_profiles_and_clusters_reach_the_runner_manager(rendered: dict[str, Outcome], tmp_path: Path) -> None:
    objects = rendered["profiles"].objects
    runners = loaded(tmp_path, one(objects, "Deployment", NAME), objects)[0].configuration.runners
    assert [profile.name for profile in runners.profiles] == ["linux", "gpu", "arm"]
    assert runners.clusters == {
        "default": KubernetesCluster(namespace="runners"),
        "build": KubernetesCluster(namespace="ci", context="build", kubeconfig=f"{tmp_path}/kubeconfig/build/config"),
    }
    assert runners.instance == NAME


def runners_section(outcome: Outcome) -> dict[str, Any]:
    section = yaml.safe_load(one(outcome.objects, "ConfigMap", NAME)["data"]["jobyard.yaml"])["runners"]
    assert isinstance(section, dict)
    return section


def test_the_runners_section_is_that_of_the_values(rendered: dict[str, Outcome]) -> None:
    section = runners_section(rendered["app"])
    given = example("app")["runners"]
    assert {key: section[key] for key in given} == given  # large numbers, too
    assert section["github_ca_file"] == f"{MOUNTED}github-ca/ca.crt"
    assert section["instance"] == NAME
    profiles = runners_section(rendered["profiles"])["profiles"]
    assert profiles == example("profiles")["runners"]["profiles"]
    assert "runners" not in one(rendered["no-runners"].objects, "ConfigMap", NAME)["data"]["jobyard.yaml"]
