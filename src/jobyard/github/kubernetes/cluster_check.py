"""Checks a cluster before anything is launched: access, permissions, and each profile's pod by a dry run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jobyard.domain.runners.profile import RunnerProfile
from jobyard.github.api import JitConfig
from jobyard.github.kubernetes import labels
from jobyard.github.kubernetes.api import NOT_FOUND, KubernetesApi, KubernetesError, KubernetesUnavailable
from jobyard.github.kubernetes.pod_template import runner_objects, template_problems
from jobyard.github.launcher import LaunchRequest
from jobyard.ports.store import Finding, Level

NEEDED = {
    "pods": ("get", "list", "watch", "create", "delete", "patch"),
    "secrets": ("get", "list", "create", "delete", "patch"),
}


class ClusterCheck:
    def __init__(self, api: KubernetesApi, cluster: str, instance: str) -> None:
        self._api = api
        self._cluster = cluster
        self._instance = instance

    async def run(self, profiles: Mapping[str, Sequence[RunnerProfile]]) -> list[Finding]:
        """Findings for the profiles of each namespace."""
        findings: list[Finding] = []
        for namespace, its_profiles in profiles.items():
            try:
                findings += await self._check_permissions(namespace)
                findings += await self._check_namespace(namespace)
                for profile in its_profiles:
                    findings += await self._check_profile(namespace, profile)
            except KubernetesUnavailable as error:
                advice = "check the address, the credentials and the network"
                findings.append(Finding(Level.FAIL, f"cluster {self._cluster}", str(error), advice))
                break
            except KubernetesError as error:
                where = f"cluster {self._cluster}, namespace {namespace}"
                findings.append(Finding(Level.FAIL, where, f"status {error.status}: {error}", _advice(error)))
        return findings

    async def _check_permissions(self, namespace: str) -> list[Finding]:
        check = f"cluster {self._cluster}, namespace {namespace}"
        missing: list[str] = []
        for resource, verbs in NEEDED.items():
            denied = [
                verb
                for verb in verbs
                if not await self._api.self_subject_access_review(namespace, verb, resource)
            ]  # fmt: skip
            if denied:
                missing.append(f"{resource}: {', '.join(denied)}")
        if missing:
            message = f"missing permissions for {'; '.join(missing)}"
            return [Finding(Level.FAIL, check, message, "add them to the Role of the manager in this namespace")]
        return [Finding(Level.OK, check, "all permissions for pods and secrets")]

    async def _check_namespace(self, namespace: str) -> list[Finding]:
        """By a dry run: reading namespaces would need a permission for the whole cluster."""
        request = _request(RunnerProfile(name="check", labels=("check",), image="check"))
        secret = runner_objects(request, namespace=namespace, instance=self._instance).secret
        try:
            await self._api.create("secrets", namespace, secret, dry_run=True)
        except KubernetesError as error:
            check = f"cluster {self._cluster}, namespace {namespace}"
            if error.status == NOT_FOUND:
                return [Finding(Level.FAIL, check, f"the namespace does not exist: {error}", "create the namespace")]
            return self._rejected(check, error)
        return []

    async def _check_profile(self, namespace: str, profile: RunnerProfile) -> list[Finding]:
        check = f"profile {profile.name}, cluster {self._cluster}"
        problems = template_problems(profile)
        findings = [Finding(Level.FAIL, check, each, "change pod_template or image") for each in problems]
        pod = runner_objects(_request(profile), namespace=namespace, instance=self._instance).pod
        try:
            await self._api.create("pods", namespace, pod, dry_run=True)
        except KubernetesError as error:
            return findings + self._rejected(check, error)
        return findings or [Finding(Level.OK, check, f"the cluster accepts its pod in namespace {namespace}")]

    def _rejected(self, check: str, error: KubernetesError) -> list[Finding]:
        if isinstance(error, KubernetesUnavailable):
            raise error
        if error.status == 409:
            return []
        if error.status == 403 and "exceeded quota" in str(error):
            return [Finding(Level.WARN, check, f"no room at present: {error}", "raise the quota or lower max_total")]
        return [Finding(Level.FAIL, check, f"rejected: {error}", _advice(error))]


def _advice(error: KubernetesError) -> str:
    match error.status:
        case 401:
            return "renew the credentials"
        case 403:
            return "add the permission to the Role of the manager, or relax the admission policy"
        case 400 | 422:
            return "change pod_template"
        case _:
            return "see the log of the API server"


def _request(profile: RunnerProfile) -> LaunchRequest:
    name = f"jobyard-check-{labels.label_value(profile.name).lower().replace('_', '-').replace('.', '-')}"[:63]
    jit = JitConfig(runner_id=0, name=name, encoded="check")
    return LaunchRequest(name=name.rstrip("-"), profile=profile, org_name="check", jit=jit)
