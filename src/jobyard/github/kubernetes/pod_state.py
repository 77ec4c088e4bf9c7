"""A pod as an Instance: its phase by the runner's container, what keeps it from starting, and how it ended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jobyard.domain.instant import Instant, instant
from jobyard.github.kubernetes import labels
from jobyard.github.kubernetes.api import Object
from jobyard.github.launcher import Instance, PendingCause, Phase

RUNNER = "runner"  # the name of the runner's container

# They may pass: the registry, or the way to it, may be away for a moment.
IMAGE_ERRORS = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "RegistryUnavailable", "ImageInspectError", "SignatureValidationFailed"}
)
FINAL_ERRORS = frozenset({"InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError"})
# The kubelet could not read a secret or config map in time, which says nothing about whether it exists.
NOT_SYNCED = "failed to sync"
# Exit code of run.sh, with ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE=1.
VERSION_TOO_OLD = 7
LONGEST_REASON = 300


def instance_of(pod: Object) -> Instance:
    metadata, status = _mapping(pod, "metadata"), _mapping(pod, "status")
    state = _runner_state(status)
    terminated, running = _mapping(state, "terminated"), _mapping(state, "running")
    facts: dict[str, Any] = {"phase": Phase.PENDING}
    if terminated or status.get("phase") in {"Succeeded", "Failed"}:
        facts = {"phase": Phase.ENDED, "reason": _end(status, terminated), **_times(terminated)}
        facts["exit_code"] = terminated.get("exitCode")
        facts["finished_at"] = facts["finished_at"] or _ended_at(status)
    elif running:
        facts = {"phase": Phase.RUNNING, "reason": _disruption(status), **_times(running)}
    else:
        facts["trouble"], facts["reason"] = _trouble(status)
    return Instance(
        name=metadata.get("name", ""),
        uid=metadata.get("uid", ""),
        namespace=metadata.get("namespace", ""),
        created_at=_instant(metadata.get("creationTimestamp")) or 0,
        is_terminating=bool(metadata.get("deletionTimestamp")),
        **_identity(metadata),
        **facts,
    )


def _identity(metadata: Object) -> dict[str, Any]:
    # Annotations first: a label has at most 63 characters of the value.
    known = {**_mapping(metadata, "labels"), **_mapping(metadata, "annotations")}
    return {
        "org_name": known.get(labels.ORG, ""),
        "repository": known.get(labels.REPOSITORY) or None,
        "profile": known.get(labels.PROFILE, ""),
        "ticket_id": known.get(labels.TICKET) or None,
        "runner_id": _number(known.get(labels.RUNNER_ID)),
        "requested_job_id": _number(known.get(labels.JOB_ID)),
    }


def _runner_state(status: Object) -> Object:
    statuses = status.get("containerStatuses") or ()
    return next((_mapping(each, "state") for each in statuses if each.get("name") == RUNNER), {})


def _times(state: Object) -> dict[str, Instant | None]:
    return {"started_at": _instant(state.get("startedAt")), "finished_at": _instant(state.get("finishedAt"))}


def _ended_at(status: Object) -> Instant | None:
    """When a pod ended whose runner has no end of its own: the last change of a condition."""
    changes = [_instant(each.get("lastTransitionTime")) for each in status.get("conditions") or ()]
    return max((change for change in changes if change is not None), default=None)


def _end(status: Object, terminated: Object) -> str:
    """How it ended; empty after exit code 0."""
    of_pod = _line(status.get("reason"), status.get("message"))  # Evicted, DeadlineExceeded, NodeLost
    code = terminated.get("exitCode")
    if of_pod or code is None:
        return of_pod or _failed_container(status) or _disruption(status)
    if code == VERSION_TOO_OLD:
        return "exit code 7: the runner's version is too old for GitHub. Use an image with a newer runner."
    if code == 0:
        return ""
    reason = terminated.get("reason", "")
    text = f"exit code {code}" + (f" ({reason})" if reason not in {"", "Error"} else "")
    return _line(text, terminated.get("message")) or _disruption(status)


def _failed_container(status: Object) -> str:
    for each in _containers(status):
        terminated = _mapping(_mapping(each, "state"), "terminated")
        if terminated.get("exitCode"):
            text = f"container {each.get('name')}: exit code {terminated['exitCode']}"
            return _line(text, terminated.get("message"))
    return ""


def _disruption(status: Object) -> str:
    """That its node is lost, or that it is about to be evicted."""
    if status.get("phase") == "Unknown" or status.get("reason") == "NodeLost":
        return _line("node lost", status.get("message"))
    target = _condition(status, "DisruptionTarget")
    if target.get("status") == "True":
        return _line(target.get("reason"), target.get("message"))
    ready = _condition(status, "Ready")
    if ready.get("status") == "Unknown" or ready.get("reason") == "NodeStatusUnknown":
        return _line("node lost", ready.get("message"))
    return ""


def _trouble(status: Object) -> tuple[PendingCause | None, str]:
    scheduled = _condition(status, "PodScheduled")
    if scheduled.get("status") == "False":
        return PendingCause.UNSCHEDULABLE, _line(scheduled.get("reason"), scheduled.get("message"))
    other = ""
    for each in _containers(status):
        waiting = _mapping(_mapping(each, "state"), "waiting")
        reason, message = waiting.get("reason", ""), waiting.get("message", "")
        text = _line(f"container {each.get('name')}: {reason}", message)
        if reason in FINAL_ERRORS and NOT_SYNCED not in message:
            return PendingCause.INVALID, text
        if reason in IMAGE_ERRORS:
            return PendingCause.IMAGE_ERROR, text
        if reason not in {"", "PodInitializing", "ContainerCreating"}:
            other = other or text
    return None, other or _disruption(status)


def _containers(status: Object) -> Iterator[Object]:
    yield from status.get("initContainerStatuses") or ()
    yield from status.get("containerStatuses") or ()


def _condition(status: Object, type: str) -> Object:
    return next((each for each in status.get("conditions") or () if each.get("type") == type), {})


def _mapping(of: Object, key: str) -> Object:
    return of.get(key) or {}


def _line(first: str | None, message: str | None) -> str:
    """
    >>> _line("Evicted", "The node was low\\non memory."), _line("", None)
    ('Evicted: The node was low on memory.', '')
    """
    text = ": ".join(part for part in (first, message) if part)
    return " ".join(text.split())[:LONGEST_REASON]


def _instant(text: str | None) -> Instant | None:
    return instant(text) if text else None


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() else None
