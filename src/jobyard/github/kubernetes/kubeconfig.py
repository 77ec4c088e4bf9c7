"""How to reach a cluster: by the service account of the manager's own pod, or by a kubeconfig."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from jobyard.errors import ConfigurationError
from jobyard.github.kubernetes.credentials import CredentialSource, ExecCredentials, FileCredentials, Value, decoded

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# Ignoring them would use other rights than the kubeconfig says.
UNSUPPORTED = ("auth-provider", "username", "password", "as", "as-uid", "as-groups", "as-user-extra")


class ClusterAccess(NamedTuple):
    server: str  # its URL
    source: CredentialSource
    authority: Value  # PEM; empty: the authorities of the system
    namespace: str | None = None
    verifies: bool = True
    server_name: str | None = None  # in its certificate; None: the host in the URL
    proxy: str | None = None


def find_access(
    kubeconfig: str | None = None,
    context: str | None = None,
    environment: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
) -> ClusterAccess:
    """The access that is configured. Raises ConfigurationError."""
    host = environment.get("KUBERNETES_SERVICE_HOST")
    if kubeconfig is None and context is None and host and (service_account / "token").exists():
        return _in_cluster(host, environment.get("KUBERNETES_SERVICE_PORT", "443"), service_account)
    named = kubeconfig or environment.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    paths = [Path(each).expanduser() for each in named.split(os.pathsep) if each]
    found = [path for path in paths if path.exists()]
    if not found:
        raise ConfigurationError(
            f"Cannot find a Kubernetes cluster: {named} does not exist, and the manager does not run in a pod with a "
            "service account. Set kubeconfig of the cluster."
        )
    return _from_files(found, context)


def _in_cluster(host: str, port: str, folder: Path) -> ClusterAccess:
    namespace = folder / "namespace"
    return ClusterAccess(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        source=FileCredentials(Value(path=folder / "token"), Value(), Value()),
        authority=Value(path=folder / "ca.crt"),
        namespace=namespace.read_text("utf-8").strip() if namespace.exists() else None,
    )


def _from_files(paths: list[Path], context: str | None) -> ClusterAccess:
    files = [(path, _load(path)) for path in paths]
    current = context or next((each["current-context"] for _, each in files if each.get("current-context")), None)
    if not current:
        raise ConfigurationError(f"{paths[0]} has no current-context. Set context of the cluster.")
    _, chosen = _named(files, "context", current)
    if "cluster" not in chosen:
        raise ConfigurationError(f'The context "{current}" names no cluster.')
    cluster_folder, cluster = _named(files, "cluster", chosen["cluster"])
    user_folder, user = _named(files, "user", chosen["user"]) if chosen.get("user") else (cluster_folder, {})
    if not cluster.get("server"):
        raise ConfigurationError(f'The cluster "{chosen["cluster"]}" has no server.')
    return ClusterAccess(
        server=cluster["server"].rstrip("/"),
        source=_source(user, user_folder, cluster),
        authority=_value(cluster, "certificate-authority", cluster_folder),
        namespace=chosen.get("namespace"),
        verifies=not cluster.get("insecure-skip-tls-verify", False),
        server_name=cluster.get("tls-server-name"),
        proxy=cluster.get("proxy-url"),
    )


def _load(path: Path) -> dict[str, Any]:
    try:
        found = yaml.safe_load(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigurationError(f"Cannot read {path}: {error.strerror}.") from error
    except (yaml.YAMLError, UnicodeDecodeError):
        raise ConfigurationError(f"{path} is not valid YAML.") from None  # its text may contain secrets
    if not isinstance(found, dict):
        raise ConfigurationError(f"{path} is not a kubeconfig.")
    return found


def _named(files: list[tuple[Path, dict[str, Any]]], kind: str, name: str) -> tuple[Path, dict[str, Any]]:
    """The entry of that name, of the first file that has it, and the folder to which its paths are relative."""
    for path, content in files:
        for entry in content.get(f"{kind}s") or ():
            if entry.get("name") == name:
                return path.parent, entry.get(kind) or {}
    known = ", ".join(str(entry.get("name")) for _, content in files for entry in content.get(f"{kind}s") or ())
    raise ConfigurationError(f'The kubeconfig has no {kind} "{name}"; it has: {known or "none"}.')


def _source(user: dict[str, Any], folder: Path, cluster: dict[str, Any]) -> CredentialSource:
    found = [key for key in UNSUPPORTED if user.get(key)]
    if found:
        raise ConfigurationError(f"The kubeconfig uses {', '.join(found)}, which is not supported.")
    if user.get("exec"):
        return _plugin(user["exec"], folder, cluster)
    # As in kubectl, the file is preferred to an inline token, and inline data to the files of a certificate.
    token = (
        Value(path=folder / user["tokenFile"])
        if user.get("tokenFile")
        else Value(user["token"].encode() if user.get("token") else None)
    )
    certificate, key = _value(user, "client-certificate", folder), _value(user, "client-key", folder)
    if bool(certificate) != bool(key):
        raise ConfigurationError("The kubeconfig has a client certificate without its key, or the reverse.")
    return FileCredentials(token, certificate, key)


def _value(entry: dict[str, Any], field: str, folder: Path) -> Value:
    if entry.get(f"{field}-data"):
        return Value(decoded(entry[f"{field}-data"], f"{field}-data"))
    return Value(path=folder / entry[field]) if entry.get(field) else Value()


def _plugin(plugin: dict[str, Any], folder: Path, cluster: dict[str, Any]) -> CredentialSource:
    command = plugin.get("command") or ""
    if plugin.get("interactiveMode") == "Always":
        raise ConfigurationError(f"The credential plugin {command} needs a terminal, which a manager does not have.")
    if "/" in command and not Path(command).is_absolute():
        command = str(folder / command)
    spec: dict[str, Any] = {"interactive": False}
    if plugin.get("provideClusterInfo"):
        spec["cluster"] = {key: value for key, value in cluster.items() if key != "extensions"}
    return ExecCredentials(
        command=[command, *(plugin.get("args") or ())],
        variables={each["name"]: each["value"] for each in plugin.get("env") or ()},
        info={"kind": "ExecCredential", "apiVersion": plugin.get("apiVersion"), "spec": spec},
        hint=plugin.get("installHint") or "",
    )
