"""The secret and the pod of a runner: what is always there, what a profile may change, and what it may not."""

from __future__ import annotations

import asyncio
import base64
import copy
import json
import os
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import kubernetes_validate
import pytest

from jobyard.domain.runners.profile import RunnerProfile, RunnerTimeouts
from jobyard.github.api import JitConfig
from jobyard.github.kubernetes.pod_state import instance_of
from jobyard.github.kubernetes.pod_template import (
    RunnerObjects,
    owner_reference,
    runner_objects,
    template_problems,
    warm_script,
)
from jobyard.github.launcher import LaunchRequest, Phase

JIT = JitConfig(runner_id=77, name="jit-acme-1", encoded="c2VjcmV0LWtleQ==")


def objects(template: dict[str, Any] | None = None, **changes: Any) -> RunnerObjects:
    profile = RunnerProfile(
        name="linux", labels=("code-linux",), image="registry.example.com/runner:1", pod_template=template or {}
    )
    facts: dict[str, Any] = {
        "name": "jit-acme-1",
        "profile": profile,
        "org_name": "acme",
        "ticket_id": "0199aa",
        "jit": JIT,
        "requested_job_id": 12,
        "annotations": {"url": "https://github.example.com/acme/app/actions/runs/1/job/12", "job name": "build (x64)"},
    }
    made = runner_objects(LaunchRequest(**facts | changes), namespace="runners", instance="blue")
    for each in made:
        kubernetes_validate.validate(each, "1.31", strict=True)
    return made


def variables(pod: dict[str, Any]) -> dict[str, Any]:
    return {each["name"]: each for each in pod["spec"]["containers"][0]["env"]}


def test_the_configuration_is_only_in_the_secret() -> None:
    secret, pod = objects()
    assert base64.b64decode(secret["data"]["jit-config"]).decode() == JIT.encoded
    assert JIT.encoded not in json.dumps(pod)
    reference = variables(pod)["ACTIONS_RUNNER_INPUT_JITCONFIG"]
    assert reference["valueFrom"]["secretKeyRef"] == {"name": "jit-acme-1", "key": "jit-config"}
    assert secret["metadata"]["name"] == pod["metadata"]["name"] == "jit-acme-1"
    assert secret["metadata"]["namespace"] == pod["metadata"]["namespace"] == "runners"


def test_a_pod_that_ends_by_itself_and_sees_nothing_of_the_cluster() -> None:
    spec = objects().pod["spec"]
    assert spec["restartPolicy"] == "Never"
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False
    assert spec["terminationGracePeriodSeconds"] == 60
    assert {each["key"]: each["tolerationSeconds"] for each in spec["tolerations"]} == {
        "node.kubernetes.io/not-ready": 60,
        "node.kubernetes.io/unreachable": 60,
    }
    (runner,) = spec["containers"]
    assert runner["name"] == "runner"
    assert runner["command"][0].endswith("/runner/run.sh")
    for name in (
        "RUNNER_MANUALLY_TRAP_SIG",
        "ACTIONS_RUNNER_PRINT_LOG_TO_STDOUT",
        "ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE",
    ):
        assert variables({"spec": spec})[name]["value"] == "1"


def test_the_deadline_leaves_a_job_its_full_time() -> None:
    profile = RunnerProfile(name="p", labels=("p",), timeouts=RunnerTimeouts(busy=3600))
    deadline = objects(profile=profile).pod["spec"]["activeDeadlineSeconds"]
    assert 3600 < deadline < 3600 * 2
    endless = RunnerProfile(name="p", labels=("p",), timeouts=RunnerTimeouts(busy=1e18))
    assert objects(profile=endless).pod["spec"]["activeDeadlineSeconds"] == 2**31 - 1


def test_the_instance_is_what_was_requested() -> None:
    found = instance_of(objects(repository="site").pod)
    assert (found.name, found.org_name, found.repository, found.profile) == ("jit-acme-1", "acme", "site", "linux")
    assert (found.ticket_id, found.runner_id, found.requested_job_id) == ("0199aa", 77, 12)
    assert found.phase is Phase.PENDING


def test_labels_are_valid_and_annotations_are_complete() -> None:
    name = "Linux, large & fast: " + "x" * 80
    pod = objects(profile=RunnerProfile(name=name, labels=("a",), image="i")).pod
    assert pod["metadata"]["labels"]["jobyard/profile"] == "Linux--large---fast--" + "x" * 42
    assert instance_of(pod).profile == name
    assert pod["metadata"]["labels"]["jobyard/instance"] == "blue"
    assert pod["metadata"]["annotations"]["jobyard/job-name"] == "build (x64)"


def test_a_template_adds_and_changes() -> None:
    template = {
        "metadata": {"labels": {"team": "ci"}, "annotations": {"example.com/cost": "a"}},
        "spec": {
            "nodeSelector": {"pool": "ci"},
            "enableServiceLinks": None,
            "terminationGracePeriodSeconds": 5,
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
            "volumes": [{"name": "work", "emptyDir": {}}],
            "initContainers": [{"name": "dind", "image": "docker:dind", "restartPolicy": "Always"}],
            "containers": [
                {"name": "proxy", "image": "proxy:1"},
                {
                    "name": "runner",
                    "resources": {"limits": {"memory": "4Gi"}},
                    "env": [{"name": "DOCKER_HOST", "value": "tcp://localhost"}],
                    "volumeMounts": [{"name": "work", "mountPath": "/work"}],
                },
            ],
        },
    }
    before = copy.deepcopy(template)
    pod = objects(template).pod
    spec = pod["spec"]
    assert pod["metadata"]["labels"]["team"] == "ci"
    assert pod["metadata"]["labels"]["jobyard/org"] == "acme"
    assert "enableServiceLinks" not in spec
    assert spec["terminationGracePeriodSeconds"] == 5
    assert [each["key"] for each in spec["tolerations"]] == [
        "gpu",
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ]
    runner, proxy = spec["containers"]
    assert (runner["name"], runner["image"], proxy["name"]) == ("runner", "registry.example.com/runner:1", "proxy")
    assert runner["resources"] == {"limits": {"memory": "4Gi"}}
    assert {"DOCKER_HOST", "ACTIONS_RUNNER_INPUT_JITCONFIG"} <= variables(pod).keys()
    assert template == before


@pytest.mark.parametrize(
    "template",
    [
        {"spec": {"restartPolicy": "Always"}},
        {"spec": {"restartPolicy": None}},
        {"metadata": None},
        {"metadata": {"name": "other", "namespace": "kube-system", "labels": None, "annotations": None}},
        {"metadata": {"labels": {"jobyard/instance": "green", "app.kubernetes.io/managed-by": "me"}}},
        {
            "spec": {
                "containers": [{"name": "runner", "env": [{"name": "ACTIONS_RUNNER_INPUT_JITCONFIG", "value": "x"}]}]
            }
        },
        {"spec": {"containers": [{"name": "runner", "env": None}]}},
        {"spec": {"containers": None}},
        {"spec": {"containers": [{"name": "other", "image": "x"}]}},
        {"kind": "Job", "apiVersion": "batch/v1"},
    ],
)
def test_a_template_cannot_change_what_the_manager_relies_on(template: dict[str, Any]) -> None:
    pod = objects(template).pod
    assert (pod["kind"], pod["apiVersion"]) == ("Pod", "v1")
    assert pod["spec"]["restartPolicy"] == "Never"
    metadata = pod["metadata"]
    assert (metadata["name"], metadata["namespace"]) == ("jit-acme-1", "runners")
    assert metadata["labels"]["jobyard/instance"] == "blue"
    assert metadata["labels"]["app.kubernetes.io/managed-by"] == "jobyard"
    assert instance_of(pod).ticket_id == "0199aa"
    reference = variables(pod)["ACTIONS_RUNNER_INPUT_JITCONFIG"]
    assert "value" not in reference
    assert reference["valueFrom"]["secretKeyRef"]["key"] == "jit-config"


@pytest.mark.parametrize(
    ("template", "image", "says"),
    [
        ({"spec": {"restartPolicy": "OnFailure"}}, "i", "restartPolicy"),
        ({"sepc": {}}, "i", "'sepc'"),
        ({}, "", "image is missing"),
        ({"spec": {"containers": [{"image": "x"}]}}, "i", "no name"),
        (
            {"spec": {"containers": [{"name": "runner", "env": [{"name": "ACTIONS_RUNNER_INPUT_JITCONFIG"}]}]}},
            "i",
            "set by",
        ),
    ],
)
def test_problems_of_a_template(template: dict[str, Any], image: str, says: str) -> None:
    (problem,) = template_problems(RunnerProfile(name="p", labels=("p",), image=image, pod_template=template))
    assert says in problem


def test_an_image_in_the_template_is_enough() -> None:
    template = {"spec": {"containers": [{"name": "runner", "image": "x"}]}}
    assert template_problems(RunnerProfile(name="p", labels=("p",), pod_template=template)) == []


def test_the_secret_belongs_to_the_pod() -> None:
    patch = owner_reference({"metadata": {"name": "a", "uid": "u1"}})
    assert patch["metadata"]["ownerReferences"] == [{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "u1"}]


# Warm runners


def warm(template: dict[str, Any] | None = None) -> RunnerObjects:
    return objects(
        template,
        jit=None,
        org_name="",
        warm_url="https://jobyard.example.com/w",
        warm_token="t0ken",
    )


def test_a_warm_runner_has_a_token_and_no_configuration() -> None:
    secret, pod = warm()
    assert base64.b64decode(secret["data"]["warm-token"]) == b"t0ken"
    assert "t0ken" not in json.dumps(pod)
    assert "ACTIONS_RUNNER_INPUT_JITCONFIG" not in variables(pod)
    assert "activeDeadlineSeconds" not in pod["spec"]
    assert instance_of(pod).org_name == ""


def test_a_warm_runner_starts_the_command_of_the_template() -> None:
    template = {"spec": {"containers": [{"name": "runner", "command": ["/wrap"], "args": ["a", "b"]}]}}
    command = warm(template).pod["spec"]["containers"][0]["command"]
    assert command[:2] == ["/bin/sh", "-c"]
    assert command[-3:] == ["/wrap", "a", "b"]
    assert "args" not in warm(template).pod["spec"]["containers"][0]


class Answers(BaseHTTPRequestHandler):
    statuses: ClassVar[list[int]] = []
    tokens: ClassVar[list[str | None]] = []

    def do_POST(self) -> None:
        self.tokens.append(self.headers["Authorization"])
        status = self.statuses.pop(0)
        self.send_response(status)
        body = b"the configuration" if status == 200 else b""
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def site() -> Iterator[str]:
    Answers.statuses, Answers.tokens = [], []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/warm"
    server.shutdown()
    thread.join()
    server.server_close()


async def run_script(url: str, program: Path) -> tuple[int | None, str]:
    variables = {"PATH": os.environ["PATH"], "JOBYARD_WARM_URL": url, "JOBYARD_WARM_TOKEN": "t0ken"}
    process = await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", warm_script(), "warm-runner", str(program), "one two",
        env=variables, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    output, _ = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode, output.decode()


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "run.sh"
    path.write_text('#!/bin/sh\necho "$1|$ACTIONS_RUNNER_INPUT_JITCONFIG|${JOBYARD_WARM_TOKEN-none}"\nexit 3\n')
    path.chmod(0o755)
    return path


async def test_the_script_waits_for_the_configuration(site: str, program: Path) -> None:
    Answers.statuses = [204, 503, 200]
    assert await run_script(site, program) == (3, "one two|the configuration|none\n")
    assert Answers.tokens == ["Bearer t0ken"] * 3


async def test_the_script_ends_when_the_runner_is_not_wanted(site: str, program: Path) -> None:
    Answers.statuses = [204, 410]
    status, output = await run_script(site, program)
    assert (status, output) == (1, "This warm runner is not wanted any more: status 410.\n")


async def test_the_script_outlives_a_manager_that_is_away(program: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/warm"
        variables = {"PATH": os.environ["PATH"], "JOBYARD_WARM_URL": url, "JOBYARD_WARM_TOKEN": "t0ken"}
        process = await asyncio.create_subprocess_exec(
            "/bin/sh", "-c", warm_script(), "warm-runner", str(program),
            env=variables, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stderr is not None
        for _ in range(2):
            assert b"connect" in (await asyncio.wait_for(process.stderr.readline(), 60)).lower()
        assert process.returncode is None
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 60) == 143
