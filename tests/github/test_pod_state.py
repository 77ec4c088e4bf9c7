"""Pods as instances, by statuses as Kubernetes reports them."""

from __future__ import annotations

from typing import Any

import pytest

from jobyard.domain.instant import instant
from jobyard.github.kubernetes.pod_state import instance_of
from jobyard.github.launcher import Instance, PendingCause, Phase

CREATED, STARTED, FINISHED = "2026-11-18T10:00:00Z", "2026-11-18T10:00:20Z", "2026-11-18T10:05:00Z"
RUNNING = {"running": {"startedAt": STARTED}}


def pod(phase: str, runner: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    if runner is not None:
        status["containerStatuses"] = [*status.pop("others", []), {"name": "runner", "state": runner, "image": "r:1"}]
    return {
        "metadata": {
            "name": "jit-acme-1",
            "uid": "u1",
            "creationTimestamp": CREATED,
            "labels": {"jobyard/org": "acme", "jobyard/profile": "linux", "jobyard/runner-id": "77"},
        },
        "status": {"phase": phase, **status},
    }


def terminated(code: int, reason: str = "Error", **more: Any) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, "startedAt": STARTED, "finishedAt": FINISHED, **more}}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"waiting": {"reason": reason, "message": message}}


def condition(type: str, status: str, reason: str = "", message: str = "") -> dict[str, Any]:
    return {"type": type, "status": status, "reason": reason, "message": message, "lastTransitionTime": FINISHED}


def test_a_pod_that_was_just_created() -> None:
    found = instance_of(pod("Pending"))
    assert found == Instance(
        name="jit-acme-1", uid="u1", org_name="acme", profile="linux", runner_id=77, created_at=instant(CREATED)
    )
    assert found.phase is Phase.PENDING
    assert found.holds_slot


def test_a_running_pod() -> None:
    found = instance_of(pod("Running", RUNNING))
    assert (found.phase, found.started_at, found.reason, found.trouble) == (Phase.RUNNING, instant(STARTED), "", None)


def test_the_runner_runs_while_a_sidecar_has_failed() -> None:
    sidecar = {"name": "proxy", "state": terminated(1)}
    assert instance_of(pod("Running", RUNNING, others=[sidecar])).phase is Phase.RUNNING


def test_the_runner_has_ended_while_a_sidecar_runs() -> None:
    found = instance_of(pod("Running", terminated(0, "Completed"), others=[{"name": "dind", "state": RUNNING}]))
    assert (found.phase, found.exit_code, found.reason) == (Phase.ENDED, 0, "")
    assert (found.started_at, found.finished_at) == (instant(STARTED), instant(FINISHED))
    assert not found.holds_slot


def test_the_runner_succeeded_and_a_sidecar_made_the_pod_fail() -> None:
    found = instance_of(pod("Failed", terminated(0, "Completed"), others=[{"name": "dind", "state": terminated(1)}]))
    assert (found.phase, found.exit_code, found.reason) == (Phase.ENDED, 0, "")


@pytest.mark.parametrize(
    ("state", "code", "reason"),
    [
        (terminated(1), 1, "exit code 1"),
        (terminated(137, "OOMKilled"), 137, "exit code 137 (OOMKilled)"),
        (
            terminated(128, "StartError", message="no such file\nor directory"),
            128,
            "exit code 128 (StartError): no such file or directory",
        ),
        (
            terminated(7),
            7,
            "exit code 7: the runner's version is too old for GitHub. Use an image with a newer runner.",
        ),
    ],
)
def test_how_a_runner_ended(state: dict[str, Any], code: int, reason: str) -> None:
    found = instance_of(pod("Failed", state))
    assert (found.phase, found.exit_code, found.reason) == (Phase.ENDED, code, reason)


def test_an_evicted_pod() -> None:
    message = "The node was low on resource: memory."
    found = instance_of(pod("Failed", reason="Evicted", message=message, conditions=[condition("Ready", "False")]))
    assert (found.phase, found.exit_code, found.reason) == (Phase.ENDED, None, f"Evicted: {message}")
    assert found.finished_at == instant(FINISHED)


def test_a_pod_over_its_deadline() -> None:
    found = instance_of(pod("Failed", terminated(143), reason="DeadlineExceeded", message="Pod was active too long"))
    assert (found.exit_code, found.reason) == (143, "DeadlineExceeded: Pod was active too long")


def test_a_failed_init_container() -> None:
    init = {"name": "copy", "state": terminated(2, message="disk full")}
    found = instance_of(pod("Failed", waiting("PodInitializing"), initContainerStatuses=[init]))
    assert (found.phase, found.exit_code, found.reason) == (Phase.ENDED, None, "container copy: exit code 2: disk full")


@pytest.mark.parametrize(
    "status",
    [
        {"phase": "Unknown", "message": "no word of node n1"},
        {"phase": "Running", "reason": "NodeLost", "message": "no word of node n1"},
        {"phase": "Running", "conditions": [condition("Ready", "Unknown", "NodeStatusUnknown", "no word of node n1")]},
    ],
)
def test_a_lost_node_keeps_the_slot(status: dict[str, Any]) -> None:
    lost = pod(status.pop("phase"), RUNNING, **status)
    lost["metadata"]["deletionTimestamp"] = FINISHED
    found = instance_of(lost)
    assert (found.phase, found.is_terminating, found.reason) == (Phase.RUNNING, True, "node lost: no word of node n1")
    assert found.holds_slot


def test_a_pod_that_is_about_to_be_evicted() -> None:
    target = condition("DisruptionTarget", "True", "DeletionByTaintManager", "Taint manager: deleting")
    found = instance_of(pod("Running", RUNNING, conditions=[target]))
    assert (found.phase, found.reason) == (Phase.RUNNING, "DeletionByTaintManager: Taint manager: deleting")


def test_an_unschedulable_pod() -> None:
    scheduled = condition("PodScheduled", "False", "Unschedulable", "0/3 nodes are available")
    found = instance_of(pod("Pending", conditions=[scheduled]))
    assert (found.phase, found.trouble) == (Phase.PENDING, PendingCause.UNSCHEDULABLE)
    assert found.reason == "Unschedulable: 0/3 nodes are available"


@pytest.mark.parametrize(
    ("state", "trouble", "reason"),
    [
        (waiting("ContainerCreating"), None, ""),
        (waiting("ErrImagePull", "no route"), PendingCause.IMAGE_ERROR, "container runner: ErrImagePull: no route"),
        (waiting("ImagePullBackOff"), PendingCause.IMAGE_ERROR, "container runner: ImagePullBackOff"),
        (waiting("InvalidImageName"), PendingCause.INVALID, "container runner: InvalidImageName"),
        (waiting("ErrImageNeverPull"), PendingCause.INVALID, "container runner: ErrImageNeverPull"),
        (
            waiting("CreateContainerConfigError", 'secret "a" not found'),
            PendingCause.INVALID,
            'container runner: CreateContainerConfigError: secret "a" not found',
        ),
        (
            waiting("CreateContainerConfigError", "failed to sync secret cache: timed out"),
            None,
            "container runner: CreateContainerConfigError: failed to sync secret cache: timed out",
        ),
        (waiting("CreateContainerError", "later"), None, "container runner: CreateContainerError: later"),
    ],
)
def test_what_keeps_a_pod_from_starting(state: dict[str, Any], trouble: PendingCause | None, reason: str) -> None:
    found = instance_of(pod("Pending", state))
    assert (found.phase, found.trouble, found.reason) == (Phase.PENDING, trouble, reason)


def test_the_image_of_a_sidecar_cannot_be_pulled() -> None:
    sidecar = {"name": "dind", "state": waiting("ImagePullBackOff", "denied")}
    found = instance_of(pod("Pending", waiting("PodInitializing"), initContainerStatuses=[sidecar]))
    assert (found.trouble, found.reason) == (PendingCause.IMAGE_ERROR, "container dind: ImagePullBackOff: denied")


def test_labels_that_others_have_changed() -> None:
    changed = pod("Running", RUNNING)
    changed["metadata"]["labels"] = {"jobyard/runner-id": "x1"}
    changed["metadata"]["annotations"] = None
    found = instance_of(changed)
    assert (found.org_name, found.runner_id, found.ticket_id) == ("", None, None)
