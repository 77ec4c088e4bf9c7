"""Rules for metadata and for small kinds; each broken rule is one field error."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any

from jobyard.demo.fake_kubernetes.errors import JsonObject, Problem, bad_request

_SUBDOMAIN_PATTERN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_LABEL_PATTERN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_VALUE_PATTERN = r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"
_NAME_PART_PATTERN = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_DATA_KEY_PATTERN = r"[-._a-zA-Z0-9]+"
_MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)")

_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    f"and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN_PATTERN}')"
)
_LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    f"with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL_PATTERN}')"
)
_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    f"'{_VALUE_PATTERN}')"
)
_KEY_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    f"'{_NAME_PART_PATTERN}')"
)
MAX_ANNOTATION_BYTES = 256 * 1024
MAX_SECRET_BYTES = 1024 * 1024


def bad_value(field: str, value: Any, message: str) -> Problem:
    shown = f'"{value}"' if isinstance(value, str) else str(value)
    return Problem(field, "FieldValueInvalid", f"Invalid value: {shown}: {message}")


def required(field: str, message: str = "") -> Problem:
    return Problem(field, "FieldValueRequired", f"Required value: {message}" if message else "Required value")


def prohibited(field: str, message: str) -> Problem:
    return Problem(field, "FieldValueForbidden", f"Forbidden: {message}")


def duplicate(field: str, value: str) -> Problem:
    return Problem(field, "FieldValueDuplicate", f'Duplicate value: "{value}"')


def missing_reference(field: str, value: str) -> Problem:
    return Problem(field, "FieldValueNotFound", f'Not found: "{value}"')


def unsupported(field: str, value: Any, supported: list[str]) -> Problem:
    listed = ", ".join(f'"{each}"' for each in supported)
    return Problem(field, "FieldValueNotSupported", f'Unsupported value: "{value}": supported values: {listed}')


def too_long(field: str, limit: int) -> Problem:
    return Problem(field, "FieldValueTooLong", f"Too long: may not be more than {limit} bytes")


def subdomain_problems(field: str, value: str) -> list[Problem]:
    """Problems of a DNS-1123 subdomain, the form of most object names."""
    problems = []
    if len(value) > 253:
        problems.append(bad_value(field, value, "must be no more than 253 characters"))
    if not re.fullmatch(_SUBDOMAIN_PATTERN, value):
        problems.append(bad_value(field, value, _SUBDOMAIN_RULE))
    return problems


def dns_label_problems(field: str, value: str) -> list[Problem]:
    problems = []
    if len(value) > 63:
        problems.append(bad_value(field, value, "must be no more than 63 characters"))
    if not re.fullmatch(_LABEL_PATTERN, value):
        problems.append(bad_value(field, value, _LABEL_RULE))
    return problems


def label_problems(field: str, labels: dict[str, Any]) -> list[Problem]:
    problems: list[Problem] = []
    for key, value in labels.items():
        problems += _key_problems(field, key)
        if not isinstance(value, str):
            raise bad_request(f"json: cannot unmarshal a non-string into Go struct field ObjectMeta.{field}")
        if len(value) > 63:
            problems.append(bad_value(field, value, "must be no more than 63 characters"))
        if not re.fullmatch(_VALUE_PATTERN, value):
            problems.append(bad_value(field, value, _VALUE_RULE))
    return problems


def _key_problems(field: str, key: str) -> list[Problem]:
    prefix, slash, name = key.rpartition("/")
    problems = []
    if slash and (not prefix or len(prefix) > 253 or not re.fullmatch(_SUBDOMAIN_PATTERN, prefix)):
        problems.append(bad_value(field, key, f"prefix part {_SUBDOMAIN_RULE}"))
    if not name:
        problems.append(bad_value(field, key, "name part must be non-empty"))
    elif len(name) > 63:
        problems.append(bad_value(field, key, "name part must be no more than 63 characters"))
    if not re.fullmatch(_NAME_PART_PATTERN, name):
        problems.append(bad_value(field, key, _KEY_RULE))
    return problems


def metadata_problems(metadata: JsonObject, *, namespace_name: bool = False) -> list[Problem]:
    name = metadata.get("name") or ""
    check = dns_label_problems if namespace_name else subdomain_problems
    problems = check("metadata.name", name) if name else [required("metadata.name", "name or generateName is required")]
    problems += label_problems("metadata.labels", metadata.get("labels") or {})
    annotations = metadata.get("annotations") or {}
    for key, value in annotations.items():
        problems += _key_problems("metadata.annotations", key.lower())
        if not isinstance(value, str):
            raise bad_request(
                "json: cannot unmarshal a non-string into Go struct field ObjectMeta.metadata.annotations"
            )
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > MAX_ANNOTATION_BYTES:
        problems.append(too_long("metadata.annotations", MAX_ANNOTATION_BYTES))
    for index, reference in enumerate(metadata.get("ownerReferences") or []):
        for part in ("apiVersion", "kind", "name", "uid"):
            if not reference.get(part):
                problems.append(bad_value(f"metadata.ownerReferences[{index}].{part}", "", "must not be empty"))
    for finalizer in metadata.get("finalizers") or []:
        if "/" not in finalizer and finalizer not in {"foregroundDeletion", "orphan", "kubernetes"}:
            message = "name is neither a standard finalizer name nor is it fully qualified"
            problems.append(bad_value("metadata.finalizers", finalizer, message))
    return problems


def secret_problems(secret: JsonObject, before: JsonObject | None) -> list[Problem]:
    """Check a secret whose `stringData` is already merged into `data`."""
    problems, size = [], 0
    data = secret.get("data") or {}
    for key, value in data.items():
        if len(key) > 253 or not re.fullmatch(_DATA_KEY_PATTERN, key) or key in {".", ".."}:
            rule = (
                "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or "
                f"'KEY_NAME',  or 'key-name', regex used for validation is '{_DATA_KEY_PATTERN}')"
            )
            problems.append(bad_value(f"data[{key}]", key, rule))
        size += len(decode_data(value))
    if size > MAX_SECRET_BYTES:
        problems.append(too_long("data", MAX_SECRET_BYTES))
    if before is not None:
        if secret.get("type") != before.get("type"):
            problems.append(bad_value("type", secret.get("type"), "field is immutable"))
        if before.get("immutable") and data != (before.get("data") or {}):
            problems.append(prohibited("data", "field is immutable when `immutable` is set"))
        if before.get("immutable") and not secret.get("immutable"):
            problems.append(prohibited("immutable", "field is immutable when `immutable` is set"))
    return problems


def decode_data(value: Any) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, TypeError, ValueError):
        message = 'Secret in version "v1" cannot be handled as a Secret: illegal base64 data at input byte 0'
        raise bad_request(message) from None


def lease_problems(lease: JsonObject) -> list[Problem]:
    spec = lease.get("spec") or {}
    problems = []
    duration = spec.get("leaseDurationSeconds")
    if duration is not None and duration <= 0:
        problems.append(bad_value("spec.leaseDurationSeconds", duration, "must be greater than 0"))
    if (spec.get("leaseTransitions") or 0) < 0:
        problems.append(
            bad_value("spec.leaseTransitions", spec["leaseTransitions"], "must be greater than or equal to 0")
        )
    if spec.get("holderIdentity") == "":
        problems.append(bad_value("spec.holderIdentity", "", "must not be empty"))
    for name in ("acquireTime", "renewTime"):
        value = spec.get(name)
        # Go reads exactly six digits here; a client that sends whole seconds is refused.
        if value is not None and not _MICRO_TIME.fullmatch(str(value)):
            layout = "2006-01-02T15:04:05.000000Z07:00"
            shown = 'Lease in version "v1" cannot be handled as a Lease'
            raise bad_request(f'{shown}: parsing time "{value}" as "{layout}": cannot parse')
    return problems


def event_problems(event: JsonObject) -> list[Problem]:
    field, namespace = "involvedObject.namespace", (event.get("involvedObject") or {}).get("namespace", "")
    if namespace != event["metadata"].get("namespace"):
        return [bad_value(field, namespace, "does not match event.namespace")]
    return []
