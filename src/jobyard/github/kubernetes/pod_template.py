"""The secret and the pod of a runner, made of a launch request and its profile."""

from __future__ import annotations

import base64
from importlib import resources
from typing import Any, NamedTuple

from jobyard.domain.runners.profile import RunnerProfile
from jobyard.github.kubernetes import labels
from jobyard.github.kubernetes.api import Object
from jobyard.github.kubernetes.merge import merge
from jobyard.github.kubernetes.pod_state import RUNNER
from jobyard.github.launcher import LaunchRequest

# Where the official image has the runner.
RUNNER_HOME = "/home/runner"
JIT_KEY, WARM_TOKEN_KEY = "jit-config", "warm-token"
JIT_VARIABLE = "ACTIONS_RUNNER_INPUT_JITCONFIG"
TERMINATION_GRACE_SECONDS = 60
# Kubernetes' own default is 300 s: a slot would be held that long by a node that is gone.
NODE_LOST_SECONDS = 60
LONGEST_DEADLINE_SECONDS = 2**31 - 1


class RunnerObjects(NamedTuple):
    secret: Object
    pod: Object


def runner_objects(request: LaunchRequest, *, namespace: str, instance: str) -> RunnerObjects:
    metadata = _metadata(request, namespace, instance)
    return RunnerObjects(_secret(request, metadata), _pod(request, metadata))


def owner_reference(pod: Object) -> Object:
    """The patch of the secret that makes Kubernetes delete it together with the pod."""
    reference = {"apiVersion": "v1", "kind": "Pod", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
    return {"metadata": {"ownerReferences": [reference]}}


def template_problems(profile: RunnerProfile) -> list[str]:
    """What is wrong with the profile's template; the API server finds the rest by a dry run."""
    template = profile.pod_template
    problems = [f"unknown key {key!r}: use metadata and spec" for key in template.keys() - {"metadata", "spec"}]
    spec = template.get("spec") or {}
    if spec.get("restartPolicy", "Never") != "Never":
        problems.append("restartPolicy is always Never: a configuration of GitHub is valid for one start")
    containers = spec.get("containers") or []
    problems += ["a container has no name" for each in containers if not each.get("name")]
    in_template = next((each.get("image") for each in containers if each.get("name") == RUNNER), None)
    if not (profile.image or in_template):
        problems.append("image is missing")
    variables = {each.get("name") for container in containers for each in container.get("env") or ()}
    problems += [f"{name} is set by the manager" for name in sorted(variables & {JIT_VARIABLE})]
    return problems


def _metadata(request: LaunchRequest, namespace: str, instance: str) -> Object:
    facts = {
        **request.annotations,
        labels.ORG: request.org_name,
        labels.REPOSITORY: request.repository or "",
        labels.PROFILE: request.profile.name,
        labels.TICKET: request.ticket_id or "",
        labels.RUNNER_ID: str(request.jit.runner_id) if request.jit else "",
        labels.JOB_ID: "" if request.requested_job_id is None else str(request.requested_job_id),
    }
    own, annotations = labels.identity({key: value for key, value in facts.items() if value})
    return {
        "name": request.name,
        "namespace": namespace,
        "labels": labels.owner_labels(instance) | own,
        "annotations": annotations,
    }


def _secret(request: LaunchRequest, metadata: Object) -> Object:
    key, value = (JIT_KEY, request.jit.encoded) if request.jit else (WARM_TOKEN_KEY, request.warm_token)
    data = {key: base64.b64encode(value.encode()).decode()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": data}


def _pod(request: LaunchRequest, metadata: Object) -> Object:
    template = request.profile.pod_template
    pod = {"metadata": {}, "spec": _base_spec(request)}
    merged: Object = merge(pod, {key: template[key] for key in ("metadata", "spec") if template.get(key)})
    # What the manager relies on: that it finds the pod, and that a configuration is used once.
    merged["metadata"] = merge(merged["metadata"], metadata)
    merged["spec"] |= {"restartPolicy": "Never", "tolerations": _tolerations(merged["spec"])}
    runner = _runner_container(merged["spec"], request)
    runner["env"] = merge(runner.get("env") or [], _protected_variables(request), "env") or []
    if request.jit is None:
        program = [*(runner.get("command") or _command()), *(runner.pop("args", None) or ())]
        script = warm_script().replace("$(", "$$(")  # Kubernetes replaces $(NAME) in commands
        runner["command"] = ["/bin/sh", "-c", script, "warm-runner", *program]
    return {"apiVersion": "v1", "kind": "Pod", **merged}


def _runner_container(spec: Object, request: LaunchRequest) -> Object:
    """The runner's container, also after a template that has replaced the containers."""
    containers: list[Object] = spec.setdefault("containers", [])
    if not any(each.get("name") == RUNNER for each in containers):
        containers.insert(0, _base_container(request))
    return next(each for each in containers if each.get("name") == RUNNER)


def _base_spec(request: LaunchRequest) -> Object:
    spec: Object = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": TERMINATION_GRACE_SECONDS,
        "containers": [_base_container(request)],
    }
    if request.jit is not None:
        # Counted from the start of the pod, so a job has its full time also in a runner that was idle at first.
        # A warm runner may wait for days: the manager's own limit of a job applies to it.
        limits = request.profile.timeouts
        total = limits.busy + limits.starting + limits.not_online + limits.idle
        spec["activeDeadlineSeconds"] = int(max(1, min(total, LONGEST_DEADLINE_SECONDS)))
    return spec


def _base_container(request: LaunchRequest) -> Object:
    container: Object = {"name": RUNNER, "command": _command(), "env": [dict(each) for each in VARIABLES]}
    return container | ({"image": request.profile.image} if request.profile.image else {})


VARIABLES = (
    {"name": "RUNNER_MANUALLY_TRAP_SIG", "value": "1"},  # run.sh passes SIGTERM on to the runner
    {"name": "ACTIONS_RUNNER_PRINT_LOG_TO_STDOUT", "value": "1"},
    {"name": "ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE", "value": "1"},
)


def _command() -> list[str]:
    return [f"{RUNNER_HOME}/run.sh"]


def _protected_variables(request: LaunchRequest) -> list[Object]:
    if request.jit is not None:
        return [_from_secret(JIT_VARIABLE, request.name, JIT_KEY)]
    return [
        {"name": "JOBYARD_WARM_URL", "value": request.warm_url},
        _from_secret("JOBYARD_WARM_TOKEN", request.name, WARM_TOKEN_KEY),
    ]


def _from_secret(variable: str, secret: str, key: str) -> Object:
    return {"name": variable, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}


def _tolerations(spec: Object) -> list[Any]:
    """Those of the template, and ours for lost nodes unless it has its own."""
    given = spec.get("tolerations") or []
    has_own = {each.get("key") for each in given}
    ours = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": NODE_LOST_SECONDS}
        for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
    ]
    return [*given, *(each for each in ours if each["key"] not in has_own)]


def warm_script() -> str:
    return (resources.files("jobyard.github.kubernetes") / "warm_runner.sh").read_text("utf-8")
