"""An in-memory Kubernetes API server with a scheduler, a kubelet and seeded faults."""

from jobyard.demo.fake_kubernetes.access import Rule, User
from jobyard.demo.fake_kubernetes.container import ContainerEnvironment
from jobyard.demo.fake_kubernetes.errors import ApiError, ConnectionLostError
from jobyard.demo.fake_kubernetes.faults import ApiFault, Faults, PodFaults, PodPlan
from jobyard.demo.fake_kubernetes.model import FakeKubernetes
from jobyard.demo.fake_kubernetes.nodes import Node
from jobyard.demo.fake_kubernetes.settings import Settings

__all__ = [
    "ApiError",
    "ApiFault",
    "ConnectionLostError",
    "ContainerEnvironment",
    "FakeKubernetes",
    "Faults",
    "Node",
    "PodFaults",
    "PodPlan",
    "Rule",
    "Settings",
    "User",
]
