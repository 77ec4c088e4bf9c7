"""GitHub's webhook deliveries: the signature, and what an event says about a job. Nothing here does any I/O."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qs

import msgspec

from jobyard.domain.instant import Instant, instant
from jobyard.domain.runners.github_job import HELD_BACK_STATUSES, GitHubJob, GitHubJobState, JobEvent
from jobyard.domain.text import without_nul, without_surrogates

MAX_BODY_BYTES = 25 << 20
SIGNATURE_PREFIX = "sha256="
ACTIONS = ("queued", "waiting", "in_progress", "completed")
MAX_TEXT = 1000
MAX_LABELS = 100
# Names that GitHub can have; others would become groups and addresses.
ACCOUNT = re.compile(r"[A-Za-z0-9._-]{1,100}")
REPOSITORY = re.compile(r"[A-Za-z0-9._-]{1,100}/[A-Za-z0-9._-]{1,100}")
MAX_INTEGER = (1 << 63) - 1


class BadDelivery(Exception):
    """The body is not a payload of GitHub."""


def is_signed(body: bytes, signature: str, secrets: Sequence[str]) -> bool:
    """Whether the signature of the raw body was made with one of the secrets.

    >>> body, secret = b"Hello, World!", "It's a Secret to Everybody"
    >>> is_signed(body, "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17", ["old", secret])
    True
    >>> is_signed(body, "", [secret]), is_signed(body, "sha256=ü", [secret]), is_signed(body, "sha256=", [])
    (False, False, False)
    """
    given = signature.encode("utf-8", "replace")
    found = False
    for secret in secrets:
        made = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
        # No early exit: the time must not tell which secret matched.
        found |= hmac.compare_digest(given, f"{SIGNATURE_PREFIX}{made}".encode())
    return found


def payload_of(body: bytes, content_type: str) -> dict[str, Any]:
    """The payload of a JSON or form body. Raises BadDelivery."""
    if content_type.partition(";")[0].strip().lower() == "application/x-www-form-urlencoded":
        try:
            fields = parse_qs(body.decode(), strict_parsing=True, max_num_fields=10)
            body = fields["payload"][0].encode()
        except (ValueError, KeyError, UnicodeDecodeError) as error:
            raise BadDelivery("The form has no field named payload.") from error
    try:
        payload = _decoded(body)
    except (ValueError, RecursionError) as error:
        raise BadDelivery(f"The payload is not JSON: {error}.") from error
    if not isinstance(payload, dict):
        raise BadDelivery("The payload is not a JSON object.")
    return payload


def _decoded(body: bytes) -> Any:
    """The value of a JSON text, also of one with half of a surrogate pair: a name must not cost the job its runner."""
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError:
        if b"\\u" not in body:
            raise
        return json.loads(body)


def job_event(payload: dict[str, Any], now: Instant) -> JobEvent | None:
    """The event of a workflow_job payload; None for one that describes no job or an unknown action."""
    action, found, repository = payload.get("action"), payload.get("workflow_job"), payload.get("repository")
    if action not in ACTIONS or not isinstance(found, dict) or not isinstance(repository, dict):
        return None
    owner = repository.get("owner") if isinstance(repository.get("owner"), dict) else {}
    organization = payload.get("organization")
    deployment = payload.get("deployment")
    installation = payload.get("installation")
    full_name = _text(repository.get("full_name"))
    org = _text(organization.get("login")) if isinstance(organization, dict) else ""
    job = describe(
        found,
        full_name,
        org or _text((owner or {}).get("login")) or full_name.partition("/")[0],
        owner_is_user=not org and (owner or {}).get("type") == "User",
        action=action,
    )
    if job is None or not ACCOUNT.fullmatch(job.org_name) or not REPOSITORY.fullmatch(job.repo_full_name):
        return None
    more = {
        "gate_updated_at": _text(deployment.get("updated_at")) if isinstance(deployment, dict) else "",
        "installation_id": _integer(installation.get("id")) if isinstance(installation, dict) else None,
    }
    return JobEvent(action=action, job=msgspec.structs.replace(job, **more), received_at=now)


def describe(
    found: dict[str, Any], repo_full_name: str, org_name: str, *, owner_is_user: bool = False, action: str = ""
) -> GitHubJob | None:
    """A job as a payload or the REST API describes it; None without an id. Any field may be missing or null."""
    job_id, status = _integer(found.get("id")), found.get("status")
    if job_id is None:
        return None
    labels = found.get("labels")
    has_runner = bool(_text(found.get("runner_name"))) or _integer(found.get("runner_id")) is not None
    state = state_of(action or str(status), str(status))
    runs = state in (GitHubJobState.IN_PROGRESS, GitHubJobState.COMPLETED)
    return GitHubJob(
        job_id=job_id,
        run_id=_integer(found.get("run_id")) or 0,
        run_attempt=_integer(found.get("run_attempt")) or 1,
        job_name=_text(found.get("name")),
        repo_full_name=repo_full_name,
        org_name=org_name,
        owner_is_user=owner_is_user,
        labels=tuple(filter(None, map(_text, labels[:MAX_LABELS]))) if isinstance(labels, list) else (),
        state=state,
        url=_text(found.get("html_url")),
        # A queued event may name a runner too; only a running or ended job tells the truth about it.
        runner_name=(_text(found.get("runner_name")) or None) if runs else None,
        runner_id=_integer(found.get("runner_id")) if runs else None,
        conclusion=_text(found.get("conclusion")) or None,
        queued_at=_instant(found.get("created_at")),
        # GitHub names the time of creation as the start of a job that no runner has.
        started_at=_instant(found.get("started_at")) if runs and has_runner else 0,
        completed_at=_instant(found.get("completed_at")) if state is GitHubJobState.COMPLETED else 0,
    )


def state_of(action: str, status: str) -> GitHubJobState:
    """
    >>> [state_of(*words).value for words in (("queued", "waiting"), ("queued", "queued"), ("completed", "completed"))]
    ['held_back', 'queued', 'completed']
    """
    if action in ("in_progress", "completed"):
        return GitHubJobState(action)
    return (
        GitHubJobState.HELD_BACK
        if action in HELD_BACK_STATUSES or status in HELD_BACK_STATUSES
        else GitHubJobState.QUEUED
    )


def _text(value: Any) -> str:
    return without_nul(without_surrogates(value))[:MAX_TEXT] if isinstance(value, str) else ""


def _integer(value: Any) -> int | None:
    """A valid id; anything else is treated as missing."""
    return value if type(value) is int and 0 < value <= MAX_INTEGER else None


def _instant(value: Any) -> Instant:
    try:
        return max(0, instant(value))
    except (ValueError, TypeError, OverflowError):
        return 0
