"""Runners as pods: each has a secret with its configuration, which Kubernetes deletes together with the pod."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import msgspec

from jobyard.domain.instant import instant
from jobyard.domain.runners.profile import RunnerProfile
from jobyard.github.errors import LaunchError, LaunchQuotaExceeded, LaunchRejected, LaunchUnavailable
from jobyard.github.kubernetes import labels
from jobyard.github.kubernetes.api import CONFLICT, NOT_FOUND, KubernetesApi, KubernetesError, Object, Resource
from jobyard.github.kubernetes.cluster_check import ClusterCheck
from jobyard.github.kubernetes.pod_state import instance_of
from jobyard.github.kubernetes.pod_template import owner_reference, runner_objects
from jobyard.github.kubernetes.pod_view import PodView
from jobyard.github.launcher import Instance, LaunchRequest
from jobyard.ports.clock import Clock, SystemClock
from jobyard.ports.store import Finding

log = logging.getLogger("jobyard.github")

# A secret without a pod is left alone for this long: its pod may be about to be created.
ORPHANED_AFTER_SECONDS = 600.0


class KubernetesLauncher:
    """Observes the cluster's namespace and those of the profiles."""

    def __init__(
        self,
        name: str,
        api: KubernetesApi,
        *,
        instance: str,
        namespace: str,
        profiles: Sequence[RunnerProfile] = (),
        clock: Clock | None = None,
        watch_seconds: float = 90.0,
    ) -> None:
        self.name = name
        self._api = api
        self._instance = instance
        self._namespace = namespace
        self._clock = clock or SystemClock()
        self._on_change: Callable[[Instance], None] = lambda _: None
        self._selector = labels.selector(instance)
        namespaces = dict.fromkeys([namespace, *(self.namespace_of(each) for each in profiles if each.cluster == name)])
        self._views = {
            each: PodView(api, each, self._selector, self._changed, watch_seconds=watch_seconds) for each in namespaces
        }
        self._is_started = False

    async def start(self, on_change: Callable[[Instance], None]) -> None:
        self._on_change = on_change
        self._is_started = True
        for view in self._views.values():
            view.start()

    async def stop(self) -> None:
        self._is_started = False
        for view in self._views.values():
            await view.stop()
        await self._api.close()

    def instances(self) -> Sequence[Instance] | None:
        if not self._is_started or not all(view.is_current for view in self._views.values()):
            return None
        return [instance for view in self._views.values() for instance in view.instances()]

    def _changed(self, instance: Instance) -> None:
        self._on_change(instance)

    # Launch

    async def launch(self, request: LaunchRequest) -> Instance:
        namespace = self.namespace_of(request.profile)
        view = self._views.get(namespace)
        if view is None:
            raise LaunchRejected(f"The namespace {namespace} of profile {request.profile.name} is not observed.")
        secret, pod = runner_objects(request, namespace=namespace, instance=self._instance)
        view.reserve(msgspec.structs.replace(instance_of(pod), created_at=self._clock.now()))
        may_exist = False
        try:
            await self._put_secret(namespace, secret)
            may_exist = True
            created = await self._put_pod(namespace, pod)
        except KubernetesError as error:
            may_exist = may_exist and (error.may_have_taken_effect or error.status == CONFLICT)
            raise _launch_error(error) from error
        except LaunchRejected:
            may_exist = False
            raise
        finally:
            view.settle(request.name, may_exist=may_exist)
        view.confirm(instance_of(created))
        await self._own(namespace, created)
        return instance_of(created)

    async def _put_secret(self, namespace: str, secret: Object) -> None:
        name = secret["metadata"]["name"]
        try:
            await self._api.create("secrets", namespace, secret)
        except KubernetesError as error:
            if error.status == CONFLICT and not error.is_temporary:  # of an earlier attempt to launch this runner
                if not self._is_own(await self._api.get("secrets", namespace, name)):
                    raise _foreign("secret", name) from error
                await self._api.patch("secrets", namespace, name, {"data": secret["data"]})
            elif not error.may_have_taken_effect or await self._find("secrets", namespace, name) is None:
                raise

    async def _put_pod(self, namespace: str, pod: Object) -> Object:
        name = pod["metadata"]["name"]
        try:
            return await self._api.create("pods", namespace, pod)
        except KubernetesError as error:
            if error.status == CONFLICT or error.may_have_taken_effect:
                found = await self._find_after(error, namespace, name)
                if found is not None and self._is_own(found):
                    return found
                if found is not None:
                    await self._try_delete("secrets", namespace, name)
                    raise _foreign("pod", name) from error
            if not error.may_have_taken_effect:
                await self._try_delete("secrets", namespace, name)
            raise

    async def _find_after(self, failure: KubernetesError, namespace: str, name: str) -> Object | None:
        """The pod if it exists in spite of the failure. Raises the failure itself when that cannot be told."""
        try:
            return await self._find("pods", namespace, name)
        except KubernetesError:
            raise failure from None

    async def _own(self, namespace: str, pod: Object) -> None:
        try:
            await self._api.patch("secrets", namespace, pod["metadata"]["name"], owner_reference(pod))
        except KubernetesError as error:  # the sweep does it later
            log.warning("cannot set the owner of secret %s: %s", pod["metadata"]["name"], error)

    def _is_own(self, found: Object) -> bool:
        return labels.owner_labels(self._instance).items() <= (found["metadata"].get("labels") or {}).items()

    # One instance

    async def get(self, name: str, namespace: str = "") -> Instance | None:
        for place in self._namespaces_of(name, namespace):
            try:
                found = await self._find("pods", place, name)
            except KubernetesError as error:
                raise _unavailable(error) from error
            if found is not None and self._is_own(found):
                return instance_of(found)
        return None

    async def remove(self, instance: Instance, *, force: bool = False) -> None:
        for namespace in self._namespaces_of(instance.name, instance.namespace):
            await self._delete_pod(namespace, instance, grace_seconds=0 if force else None)
            await self._delete_secret(namespace, instance.name)

    async def _delete_pod(self, namespace: str, instance: Instance, grace_seconds: int | None) -> None:
        try:
            uid = instance.uid or await self._own_uid("pods", namespace, instance.name)
            if uid is not None:
                await self._api.delete("pods", namespace, instance.name, uid=uid, grace_seconds=grace_seconds)
        except KubernetesError as error:
            if error.status != NOT_FOUND and not await self._is_replaced(error, namespace, instance):
                raise _unavailable(error) from error
            if namespace in self._views:
                self._views[namespace].forget(instance)

    async def _delete_secret(self, namespace: str, name: str) -> None:
        try:
            uid = await self._own_uid("secrets", namespace, name)
        except KubernetesError as error:
            log.warning("cannot read the secret %s, which is left to the next sweep: %s", name, error)
            return
        if uid is not None:
            await self._try_delete("secrets", namespace, name, uid)

    async def _own_uid(self, resource: Resource, namespace: str, name: str) -> str | None:
        """The uid of the object, unless it belongs to another manager."""
        found = await self._find(resource, namespace, name)
        return found["metadata"]["uid"] if found is not None and self._is_own(found) else None

    async def _is_replaced(self, failure: KubernetesError, namespace: str, instance: Instance) -> bool:
        """Whether the name belongs to another pod, so this one is gone."""
        if failure.status != CONFLICT or not instance.uid:
            return False
        found = await self._find_after(failure, namespace, instance.name)
        return found is None or found["metadata"].get("uid") != instance.uid

    async def annotate(self, instance: Instance, annotations: dict[str, str]) -> bool:
        own, full = labels.identity(annotations)
        changes = {"metadata": {"uid": instance.uid or None, "annotations": full, "labels": own}}
        for namespace in self._namespaces_of(instance.name, instance.namespace):
            try:
                await self._api.patch("pods", namespace, instance.name, changes)
            except KubernetesError as error:
                if error.status not in {NOT_FOUND, CONFLICT}:
                    log.warning("cannot annotate the pod %s: %s", instance.name, error)
            else:
                return True
        return False

    # Secrets

    async def sweep(self) -> int:
        count = 0
        for namespace in self._views:
            try:
                for secret in (await self._api.list("secrets", namespace, self._selector)).items:
                    count += await self._sweep_secret(namespace, secret)
            except KubernetesError as error:
                log.warning("cannot sweep the secrets of namespace %s: %s", namespace, error)
        return count

    async def _sweep_secret(self, namespace: str, secret: Object) -> bool:
        metadata = secret["metadata"]
        age_seconds = (self._clock.now() - instant(metadata["creationTimestamp"])) / 1000
        if age_seconds < ORPHANED_AFTER_SECONDS:
            return False
        pod = await self._find("pods", namespace, metadata["name"])
        if pod is None:
            return await self._try_delete("secrets", namespace, metadata["name"], metadata.get("uid"))
        if not metadata.get("ownerReferences"):
            await self._own(namespace, pod)
        return False

    # Checks

    async def check(self, profiles: Sequence[RunnerProfile]) -> list[Finding]:
        check = ClusterCheck(self._api, self.name, self._instance)
        found: dict[str, list[RunnerProfile]] = {namespace: [] for namespace in self._views}
        for profile in (each for each in profiles if each.cluster == self.name):
            found.setdefault(self.namespace_of(profile), []).append(profile)
        return await check.run(found)

    # Requests

    def namespace_of(self, profile: RunnerProfile) -> str:
        return profile.namespace or self._namespace

    def _namespaces_of(self, name: str, namespace: str) -> list[str]:
        """Where the instance is, or all observed namespaces if that is not known."""
        if namespace:
            return [namespace]
        return [each for each, view in self._views.items() if name in view] or [*self._views]

    async def _find(self, resource: Resource, namespace: str, name: str) -> Object | None:
        try:
            return await self._api.get(resource, namespace, name)
        except KubernetesError as error:
            if error.status == NOT_FOUND:
                return None
            raise

    async def _try_delete(self, resource: Resource, namespace: str, name: str, uid: str | None = None) -> bool:
        try:
            await self._api.delete(resource, namespace, name, uid=uid)
        except KubernetesError as error:
            if error.status not in {NOT_FOUND, CONFLICT}:
                log.warning("cannot delete %s %s, which is left to the next sweep: %s", resource, name, error)
            return False
        return True


def _launch_error(error: KubernetesError) -> LaunchError:
    if error.status == 403 and "exceeded quota" in str(error):
        return LaunchQuotaExceeded(str(error))
    if error.is_temporary or error.status == CONFLICT:
        return _unavailable(error)
    return LaunchRejected(str(error))


def _foreign(kind: str, name: str) -> LaunchRejected:
    return LaunchRejected(f"A {kind} named {name} exists that does not belong to this manager.")


def _unavailable(error: KubernetesError) -> LaunchUnavailable:
    return LaunchUnavailable(str(error), error.retry_after_seconds)
