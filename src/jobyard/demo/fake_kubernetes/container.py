"""What a container sees: its environment, resolved from secrets, and the files of its volumes."""

from __future__ import annotations

import base64
import re
from collections.abc import Awaitable, Callable

from jobyard.demo.fake_kubernetes.errors import JsonObject
from jobyard.demo.fake_kubernetes.storage import Storage

_VARIABLE = re.compile(r"\$(\$|\(([-._A-Za-z0-9]+)\))")
FileReader = Callable[[str], bytes | None]


class ContainerEnvironment(dict[str, str]):
    """The environment variables of one container, with its name and a reader for its mounted files."""

    def __init__(self, variables: dict[str, str], container: str, read_file: FileReader) -> None:
        super().__init__(variables)
        self.container = container
        # The content of a mounted file by its absolute path; None while it does not exist.
        self.read_file = read_file


# Runs one container and returns its exit code. A cancellation is a signal: the argument of CancelledError is SIGTERM,
# or SIGKILL, after which every further await is cancelled too.
RunContainer = Callable[[JsonObject, ContainerEnvironment], Awaitable[int]]


class ConfigError(Exception):
    """A container that cannot be created because something that it refers to does not exist."""


def resolve_environment(storage: Storage, pod: JsonObject, container: JsonObject) -> dict[str, str]:
    namespace = pod["metadata"]["namespace"]
    variables: dict[str, str] = {}
    for source in container.get("envFrom") or []:
        if (reference := source.get("secretRef")) is not None:
            data = _secret_data(storage, namespace, reference["name"], bool(reference.get("optional")))
            prefix = source.get("prefix", "")
            variables.update(
                {prefix + key: value.decode("utf-8", "surrogateescape") for key, value in (data or {}).items()}
            )
        elif not (source.get("configMapRef") or {}).get("optional"):
            raise ConfigError(f'configmap "{(source.get("configMapRef") or {}).get("name", "")}" not found')
    for variable in container.get("env") or []:
        value = _value(storage, pod, variable, variables)
        if value is not None:
            variables[variable["name"]] = value
    return variables


def _value(storage: Storage, pod: JsonObject, variable: JsonObject, known: dict[str, str]) -> str | None:
    source = variable.get("valueFrom")
    if not source:
        return expand(variable.get("value") or "", known)
    if field := source.get("fieldRef"):
        return field_value(pod, field["fieldPath"])
    if (reference := source.get("secretKeyRef")) is not None:
        namespace, optional = pod["metadata"]["namespace"], bool(reference.get("optional"))
        data = _secret_data(storage, namespace, reference["name"], optional)
        if data is not None and reference["key"] in data:
            return data[reference["key"]].decode("utf-8", "surrogateescape")
        if not optional:
            raise ConfigError(f"couldn't find key {reference['key']} in Secret {namespace}/{reference['name']}")
        return None
    if (reference := source.get("configMapKeyRef")) is not None and not reference.get("optional"):
        raise ConfigError(f'configmap "{reference.get("name", "")}" not found')
    return None


def expand(text: str, known: dict[str, str]) -> str:
    """Replace `$(NAME)` by a variable that is already defined; `$$` escapes.

    >>> expand("$(A)/b $(B) $$(A)", {"A": "1"})
    '1/b $(B) $(A)'
    """
    return _VARIABLE.sub(lambda match: "$" if match[1] == "$" else known.get(match[2], match[0]), text)


def _secret_data(storage: Storage, namespace: str, name: str, optional: bool) -> dict[str, bytes] | None:
    secret = storage.get("secrets", (namespace, name))
    if secret is None:
        if optional:
            return None
        raise ConfigError(f'secret "{name}" not found')
    return {key: base64.b64decode(value) for key, value in (secret.get("data") or {}).items()}


def field_value(pod: JsonObject, path: str) -> str:
    """A field of the pod as the downward API gives it."""
    metadata = pod["metadata"]
    if match := re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path):
        return str((metadata.get(match[1]) or {}).get(match[2], ""))
    match path:
        case "metadata.labels" | "metadata.annotations":
            values = metadata.get(path.partition(".")[2]) or {}
            return "\n".join(f'{key}="{value}"' for key, value in sorted(values.items()))
        case "spec.nodeName" | "spec.serviceAccountName":
            return str(pod["spec"].get(path.partition(".")[2], ""))
        case "status.podIP" | "status.hostIP" | "status.podIPs":
            return str(pod["status"].get(path.partition(".")[2].rstrip("s"), ""))
    return str(metadata.get(path.partition(".")[2], ""))


def missing_volume(storage: Storage, pod: JsonObject) -> str | None:
    """The first volume whose secret does not exist, as the kubelet reports it; None if all can be mounted."""
    namespace = pod["metadata"]["namespace"]
    for volume in pod["spec"].get("volumes") or []:
        references = [volume["secret"]] if "secret" in volume else []
        for source in (volume.get("projected") or {}).get("sources") or []:
            references += [source["secret"]] if "secret" in source else []
        for reference in references:
            name = reference.get("secretName") or reference.get("name")
            if not reference.get("optional") and storage.get("secrets", (namespace, name)) is None:
                return f'MountVolume.SetUp failed for volume "{volume["name"]}" : secret "{name}" not found'
    return None


def secret_files(secret: JsonObject | None, items: list[JsonObject] | None) -> dict[str, bytes]:
    """Relative path to content of the files that a secret projects."""
    data = (secret or {}).get("data") or {}
    wanted = {item["key"]: item["path"] for item in items} if items else {key: key for key in data}
    return {path: base64.b64decode(data[key]) for key, path in wanted.items() if key in data}
