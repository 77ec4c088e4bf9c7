"""The Helm chart, rendered by Helm itself: valid objects, least privilege, no secret outside of a Secret."""

from __future__ import annotations

import json
import re
import tomllib
from functools import cache

import kubernetes_validate
import kubernetes_validate.utils
import pytest
import yaml

from jobyard.cli.commands.worker import LONGEST_END_SECONDS
from jobyard.cli.server_process import STOP_SECONDS
from jobyard.config.sections import Configuration
from jobyard.github.kubernetes.cluster_check import NEEDED
from jobyard.github.kubernetes.labels import owner_labels
from jobyard.server.routes.health import ROUTES
from tests.deploy.conftest import EXAMPLES, example
from tests.deploy.helm import CHART, NAMESPACE, RELEASE, Outcome, Request, helm
from tests.deploy.objects import (
    WORKLOADS,
    container,
    mounted_files,
    of_kind,
    one,
    pod_template,
    secret_values,
    selects,
    title,
    variables,
)
from tests.house.repository import ROOT

NAME = f"{RELEASE}-jobyard"
# The oldest release that the chart accepts, and the newest that the schemas know.
KUBERNETES = ("1.25", kubernetes_validate.latest_version())
NAMESPACED = {
    "ConfigMap",
    "Deployment",
    "Ingress",
    "NetworkPolicy",
    "PodDisruptionBudget",
    "ResourceQuota",
    "Role",
    "RoleBinding",
    "Secret",
    "Service",
    "ServiceAccount",
    "ServiceMonitor",
    "StatefulSet",
}


def test_helm_lint_has_no_complaint() -> None:
    requests = [Request(example(name), lints=True) for name in EXAMPLES]
    outcomes = helm([*requests, Request({}, lints=True)])
    assert [message for outcome in outcomes for message in outcome.messages] == []


def test_its_versions() -> None:
    about = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert about["appVersion"] == project["version"]
    assert about["kubeVersion"] == f">={KUBERNETES[0]}.0-0"


@pytest.mark.parametrize("version", KUBERNETES)
def test_every_object_is_valid(version: str, rendered: dict[str, Outcome], monkeypatch: pytest.MonkeyPatch) -> None:
    # The library reads all schemas of a release for each object.
    monkeypatch.setattr(kubernetes_validate.utils, "schema_contents", cache(kubernetes_validate.utils.schema_contents))
    distinct = {json.dumps(each, sort_keys=True): each for outcome in rendered.values() for each in outcome.objects}
    checked = [each for each in distinct.values() if each["kind"] != "ServiceMonitor"]  # of the Prometheus operator
    for each in checked:
        kubernetes_validate.validate(each, version, strict=True)
    assert {each["kind"] for each in checked} == NAMESPACED - {"ServiceMonitor"}
    broken = checked[0] | {"metdata": {}}
    with pytest.raises(kubernetes_validate.ValidationError, match="metdata"):
        kubernetes_validate.validate(broken, version, strict=True)


def test_nothing_of_cluster_scope(chart: Outcome) -> None:
    assert {each["kind"] for each in chart.objects} <= NAMESPACED
    assert [title(each) for each in chart.objects if not each["metadata"].get("namespace")] == []
    titles = [title(each) for each in chart.objects]
    assert len(titles) == len(set(titles))


def test_secret_values_appear_only_in_secret_objects(chart: Outcome) -> None:
    values = {value.strip() for value in secret_values(chart.objects)}
    assert "" not in values
    texts = {title(each): json.dumps(each) for each in chart.objects if each["kind"] != "Secret"}
    texts["the notes"] = chart.notes
    assert [(name, value) for value in values for name, text in texts.items() if value in text] == []


def test_secrets_are_given_as_mounted_files(chart: Outcome) -> None:
    literal = {"JOBYARD_CONFIG", "JOBYARD_WORKER__HEALTH_HOST", "JOBYARD_WORKER__HEALTH_PORT"}
    for deployment in of_kind(chart.objects, "Deployment"):
        given = variables(deployment)
        files = mounted_files(deployment, chart.objects)
        assert {name for name in given if not name.endswith("_FILE")} <= literal
        paths = {path for name, path in given.items() if name == "JOBYARD_CONFIG" or name.endswith("_FILE")}
        assert paths <= files.keys()
        assert {"JOBYARD_CONFIG", "JOBYARD_ADMIN_TOKEN_FILE"} <= given.keys()


RUNNER_NAMESPACES = {
    "minimal": {NAMESPACE},
    "postgres": {"runners"},
    "app": {NAMESPACE},
    "profiles": {"runners", "gpu-runners"},  # not the one of the other cluster
    "ha": {"runners"},
    "separate": {"runners"},
    "no-runners": set(),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_account_may_only_manage_pods_and_their_secrets(name: str, rendered: dict[str, Outcome]) -> None:
    objects = rendered[name].objects
    roles, bindings = of_kind(objects, "Role"), of_kind(objects, "RoleBinding")
    for role in roles:
        rules = {rule["resources"][0]: rule for rule in role["rules"]}
        assert {resource: set(rule["verbs"]) for resource, rule in rules.items()} == {
            "pods": {"get", "list", "watch", "create", "delete", "patch"},
            "secrets": {"get", "list", "create", "delete", "patch"},
        }
        # What `jobyard runners check` asks the cluster for.
        assert {resource: set(rule["verbs"]) for resource, rule in rules.items()} == {
            resource: set(verbs) for resource, verbs in NEEDED.items()
        }
        assert all(rule.keys() == {"apiGroups", "resources", "verbs"} for rule in role["rules"])
        assert all(rule["apiGroups"] == [""] and len(rule["resources"]) == 1 for rule in role["rules"])
    for found in (roles, bindings):
        assert {each["metadata"]["namespace"] for each in found} == RUNNER_NAMESPACES[name]
    (account,) = of_kind(objects, "ServiceAccount")
    subject = {"kind": "ServiceAccount", "name": account["metadata"]["name"], "namespace": NAMESPACE}
    for binding in bindings:
        assert binding["subjects"] == [subject]
        assert binding["roleRef"]["kind"] == "Role"
        assert binding["roleRef"]["name"] in {role["metadata"]["name"] for role in roles}


def test_only_the_pods_that_launch_runners_get_its_token(rendered: dict[str, Outcome]) -> None:
    mounted = {
        each["metadata"]["name"]: pod_template(each)["spec"]["automountServiceAccountToken"]
        for name in ("minimal", "separate", "no-runners")
        for each in of_kind(rendered[name].objects, *WORKLOADS)
        if (name, each["kind"]) != ("no-runners", "Deployment")
    }
    assert mounted == {NAME: True, f"{NAME}-manager": True, f"{NAME}-server": False, f"{NAME}-redis": False}
    (without,) = of_kind(rendered["no-runners"].objects, "Deployment")
    assert pod_template(without)["spec"]["automountServiceAccountToken"] is False
    (account,) = of_kind(rendered["minimal"].objects, "ServiceAccount")
    assert account["automountServiceAccountToken"] is False


def test_pods_are_restricted(chart: Outcome) -> None:
    for workload in of_kind(chart.objects, *WORKLOADS):
        spec, context = pod_template(workload)["spec"], container(workload)["securityContext"]
        assert spec["securityContext"]["runAsNonRoot"] and spec["securityContext"]["runAsUser"] > 0
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert context == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        # A Service that is called jobyard or redis would set JOBYARD_PORT or REDIS_PORT.
        assert spec["enableServiceLinks"] is False
        assert {"requests", "limits"} <= container(workload)["resources"].keys()


def test_probes_ask_routes_that_exist(chart: Outcome) -> None:
    public = {route.path for route in ROUTES.all if route.permission is None}
    for deployment in of_kind(chart.objects, "Deployment"):
        only = container(deployment)
        ports = {port["name"] for port in only["ports"]}
        probes = {name: only[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
        assert {probe["path"] for probe in probes.values()} <= public
        assert {probe["port"] for probe in probes.values()} <= ports
        assert probes["readinessProbe"]["path"] == "/readyz"


def test_a_pod_has_as_much_time_as_a_stop_may_take(rendered: dict[str, Outcome]) -> None:
    deployment = one(rendered["minimal"].objects, "Deployment", NAME)
    configured = yaml.safe_load(one(rendered["minimal"].objects, "ConfigMap", NAME)["data"]["jobyard.yaml"])
    defaults = Configuration()
    server = configured["server"]["lame_duck_seconds"] + defaults.server.shutdown_timeout + STOP_SECONDS
    worker = defaults.worker.shutdown_timeout + LONGEST_END_SECONDS
    assert pod_template(deployment)["spec"]["terminationGracePeriodSeconds"] >= max(server, worker)
    assert deployment["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


def test_every_selector_matches_a_pod(chart: Outcome) -> None:
    pods = [pod_template(each)["metadata"]["labels"] for each in of_kind(chart.objects, *WORKLOADS)]
    selectors = [{"matchLabels": each["spec"]["selector"]} for each in of_kind(chart.objects, "Service")]
    selectors += [each["spec"]["selector"] for each in of_kind(chart.objects, "PodDisruptionBudget")]
    assert [sum(selects(selector, labels) for labels in pods) for selector in selectors] == [1] * len(selectors)
    monitored = [each["metadata"]["labels"] for each in of_kind(chart.objects, "Service")]
    for monitor in of_kind(chart.objects, "ServiceMonitor"):
        assert any(selects(monitor["spec"]["selector"], labels) for labels in monitored)
    backends = {
        path["backend"]["service"]["name"]
        for ingress in of_kind(chart.objects, "Ingress")
        for path in ingress["spec"]["rules"][0]["http"]["paths"]
    }
    assert backends <= {each["metadata"]["name"] for each in of_kind(chart.objects, "Service")}


@pytest.mark.parametrize("name", ["minimal", "separate", "ha"])
def test_network_policies(name: str, rendered: dict[str, Outcome]) -> None:
    objects = rendered[name].objects
    own = one(objects, "NetworkPolicy", NAME)["spec"]
    (rule,) = own["ingress"]
    assert rule["ports"] == [{"port": "http", "protocol": "TCP"}]
    assert rule.get("from", []) == example(name).get("networkPolicy", {}).get("from", [])
    for deployment in of_kind(objects, "Deployment"):
        assert selects(own["podSelector"], pod_template(deployment)["metadata"]["labels"])
    runners = one(objects, "NetworkPolicy", f"{NAME}-runners")["spec"]
    assert runners["podSelector"] == {"matchLabels": owner_labels(example(name)["runners"].get("instance") or NAME)}
    assert (runners["policyTypes"], runners["ingress"]) == (["Ingress", "Egress"], [])
    assert runners["egress"] == example(name).get("networkPolicy", {}).get("runnerEgress", [{}])
    if name == "ha":
        return
    redis = one(objects, "NetworkPolicy", f"{NAME}-redis")["spec"]
    assert redis["egress"] == []
    (peer,) = redis["ingress"][0]["from"]
    clients = [pod_template(each)["metadata"]["labels"] for each in of_kind(objects, *WORKLOADS)]
    assert {labels["app.kubernetes.io/component"] for labels in clients if selects(peer["podSelector"], labels)} == {
        labels["app.kubernetes.io/component"] for labels in clients
    } - {"redis"}


def test_replicas_and_their_budget(rendered: dict[str, Outcome]) -> None:
    three = one(rendered["ha"].objects, "Deployment", NAME)
    assert three["spec"]["replicas"] == 3
    budgets = {name: of_kind(outcome.objects, "PodDisruptionBudget") for name, outcome in rendered.items()}
    assert {name for name, found in budgets.items() if found} == {"ha", "separate"}
    assert budgets["ha"][0]["spec"]["maxUnavailable"] == 1
    assert [each["metadata"]["name"] for each in budgets["separate"]] == [f"{NAME}-server"]  # one manager needs none
    arguments = {
        each["metadata"]["name"]: container(each)["args"]
        for each in of_kind(rendered["separate"].objects, "Deployment")
    }
    assert arguments == {f"{NAME}-server": ["server"], f"{NAME}-manager": ["runners", "manager"]}
    assert container(three)["args"] == ["up"]


def test_the_store(rendered: dict[str, Outcome]) -> None:
    bundled = {name for name, outcome in rendered.items() if of_kind(outcome.objects, "StatefulSet")}
    assert bundled == set(EXAMPLES) - {"postgres", "ha"}
    stateful = one(rendered["minimal"].objects, "StatefulSet", f"{NAME}-redis")
    (claim,) = stateful["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["resources"]["requests"]["storage"] == "1Gi"
    assert "volumeClaimTemplates" not in one(rendered["separate"].objects, "StatefulSet", f"{NAME}-redis")["spec"]
    sources = {
        name: mounted_files(one(rendered[name].objects, "Deployment", NAME), rendered[name].objects)
        for name in ("postgres", "ha")
    }
    assert sources["postgres"]["/etc/jobyard/secrets/store-url"] == (f"Secret {NAMESPACE}/{NAME}-store", "store-url")
    assert sources["ha"]["/etc/jobyard/secrets/store-url"] is None  # in a Secret of the user
    assert of_kind(rendered["ha"].objects, "Secret") == []


def test_quotas(rendered: dict[str, Outcome]) -> None:
    quotas = of_kind(rendered["profiles"].objects, "ResourceQuota")
    assert {each["metadata"]["namespace"]: each["spec"]["hard"] for each in quotas} == {
        "runners": {"pods": "110"},
        "gpu-runners": {"pods": "4", "requests.nvidia.com/gpu": "4"},
    }


def test_metrics_are_read_with_a_token_of_the_user(rendered: dict[str, Outcome]) -> None:
    (monitor,) = of_kind(rendered["ha"].objects, "ServiceMonitor")
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["authorization"] == {
        "type": "Bearer",
        "credentials": {"name": "jobyard-prometheus", "key": "token"},
    }
    assert endpoint["path"] in {route.path for route in ROUTES.all}
    assert monitor["metadata"]["labels"]["release"] == "prometheus"


def test_the_notes_say_where_the_webhook_and_the_token_are(rendered: dict[str, Outcome]) -> None:
    assert "https://jobyard.example.com/webhooks/github" in rendered["app"].notes
    # Its ingress leads to the webhook only.
    assert f"The API and the dashboard:\n  kubectl -n {NAMESPACE} port-forward " in rendered["app"].notes
    assert f"get secret {NAME} " in rendered["minimal"].notes
    assert "get secret jobyard-credentials " in rendered["ha"].notes
    assert "WARNING: redis.persistence.enabled is false" in rendered["separate"].notes
    assert not re.search("WARNING|NOTE:", rendered["postgres"].notes)
