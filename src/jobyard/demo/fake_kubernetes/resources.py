"""The kinds of objects that the API server holds, and where they are found."""

from __future__ import annotations

from typing import NamedTuple

from jobyard.demo.fake_kubernetes.errors import unknown_path


class Resource(NamedTuple):
    plural: str
    kind: str
    group: str = ""
    namespaced: bool = True
    # Updates must name the resourceVersion that they are based on.
    conditional_update: bool = False
    create_on_update: bool = False
    has_status: bool = False
    # A deletion answers with the object instead of a Status.
    returns_deleted: bool = False
    # Answered at once and never stored.
    review: bool = False

    @property
    def api_version(self) -> str:
        return f"{self.group}/v1" if self.group else "v1"


RESOURCES: dict[str, Resource] = {
    resource.plural: resource
    for resource in (
        Resource("namespaces", "Namespace", namespaced=False, has_status=True, returns_deleted=True),
        Resource("pods", "Pod", has_status=True, returns_deleted=True),
        Resource("secrets", "Secret"),
        Resource("resourcequotas", "ResourceQuota", has_status=True, returns_deleted=True),
        Resource("events", "Event"),
        Resource("serviceaccounts", "ServiceAccount", returns_deleted=True),
        Resource("leases", "Lease", "coordination.k8s.io", conditional_update=True, create_on_update=True),
        Resource(
            "selfsubjectaccessreviews", "SelfSubjectAccessReview", "authorization.k8s.io", namespaced=False, review=True
        ),
        Resource("tokenreviews", "TokenReview", "authentication.k8s.io", namespaced=False, review=True),
    )
}


def find(plural: str, group: str | None = None) -> Resource:
    """The resource with this plural name; `group` None accepts any API group."""
    resource = RESOURCES.get(plural)
    if resource is None or group not in {None, resource.group}:
        raise unknown_path()
    return resource
