"""Timings of the cluster; the defaults are those of Kubernetes unless a comment says otherwise."""

from __future__ import annotations

import math
from typing import Literal

import msgspec


class Settings(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    # Watch and list.
    history_seconds: float = 300.0
    bookmark_seconds: float = 60.0
    gone_variant: Literal["event", "http", "random"] = "random"
    max_buffered_events: int = 10_000

    # Controllers.
    garbage_collection_seconds: float = 1.0
    # Kubernetes recalculates a quota some time after a pod has gone; 0 does it at once.
    quota_resync_seconds: float = 0.0
    namespace_deletion_seconds: float = 1.0
    terminated_pod_threshold: int = 12_500
    event_ttl_seconds: float = 3600.0

    # Nodes.
    node_monitor_grace_seconds: float = 40.0
    orphan_quarantine_seconds: float = 40.0
    orphan_check_seconds: float = 20.0

    # Kubelet.
    image_backoff_seconds: float = 10.0
    restart_backoff_seconds: float = 10.0
    max_backoff_seconds: float = 300.0
    # A change of a mounted secret is seen at the next periodic sync, or at once when the pod object changes.
    volume_sync_seconds: float = 60.0
    record_events: bool = True

    def __post_init__(self) -> None:
        numbers = [getattr(self, name) for name in self.__struct_fields__ if name.endswith("_seconds")]
        if any(value < 0 or math.isnan(value) for value in numbers):
            raise ValueError("Settings in seconds must not be negative.")
