"""Why a GitHub job has no runner yet: stable codes, each with its meaning."""

from __future__ import annotations

from typing import NamedTuple

CODES = {
    "no_profile": "no runner profile has all labels of the job",
    "held_back": "GitHub holds the job back: an environment gate, a concurrency group or max-parallel",
    "org_limit_reached": "the organization runs as many runners as it may",
    "org_blocked": "the limit of the organization is 0",
    "total_limit_reached": "as many runners run as may in all",
    "paused": "the queue, or the organization, is paused",
    "profile_limit_reached": "as many runners of the profile run as may",
    "quota_exceeded": "the cluster's quota has no room for another runner",
    "cluster_unavailable": "the cluster does not answer",
    "github_unavailable": "GitHub does not answer, or asks to wait",
    "group_not_visible": "the runner group of the profile cannot be used by the repository",
    "not_visible": "GitHub does not know the job, or does not show it to this access",
    "rejected": "GitHub or the cluster rejected the runner",
    "launch_failed": "the runner could not be launched",
    "runner_failed": "the last runner for it did not come online, or ended without a job",
    "starting": "a runner for it is starting",
    "checking": "an event of it came late, so GitHub is asked whether it is still queued",
    "in_line": "other jobs of the organization go first",
    "no_manager": "no manager is running",
    "next": "nothing holds it back: it is launched next",
}


class Reason(NamedTuple):
    code: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.code}: {self.sentence}"

    @classmethod
    def parse(cls, text: str) -> Reason:
        """
        >>> Reason.parse("rejected: GitHub said no.")
        Reason(code='rejected', sentence='GitHub said no.')
        """
        code, _, sentence = text.partition(": ")
        return cls(code, sentence)
