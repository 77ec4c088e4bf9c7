"""Failures of GitHub and of launchers, by what the caller should do about them.

GitHubError
├── GitHubUnavailable .... retry; the request may have taken effect
├── GitHubRateLimited .... retry after a while
├── RunnerNameTaken ...... retry with another name
└── GitHubRejected ....... do not retry
LaunchError
├── LaunchUnavailable .... retry; the runner may have been created
├── LaunchQuotaExceeded .. wait until there is room in the cluster
└── LaunchRejected ....... do not retry
"""

from __future__ import annotations

from jobyard.errors import JobyardError


class GitHubError(JobyardError):
    """A request to GitHub failed."""

    code = "github_error"


class GitHubUnavailable(GitHubError):
    """GitHub did not answer, or answered with a server error. The request may have taken effect."""

    code = "github_unavailable"


class GitHubRateLimited(GitHubError):
    """GitHub asks to wait: a primary or secondary rate limit is used up."""

    code = "github_rate_limited"

    def __init__(self, message: str, retry_after_seconds: float = 60.0) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class RunnerNameTaken(GitHubError):
    """A runner of this name is already registered, perhaps by a request whose response was lost."""

    code = "runner_name_taken"


class GitHubRejected(GitHubError):
    """GitHub rejected the request: it will not succeed by being repeated."""

    code = "github_rejected"

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status  # of GitHub's response; 0: not known


class LaunchError(JobyardError):
    """A runner could not be launched."""

    code = "launch_error"


class LaunchUnavailable(LaunchError):
    """The launcher's API did not answer, or asks to wait. The runner may have been created."""

    code = "launch_unavailable"

    def __init__(self, message: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class LaunchQuotaExceeded(LaunchError):
    """The cluster's quota has no room for another runner."""

    code = "launch_quota_exceeded"


class LaunchRejected(LaunchError):
    """The launcher rejected the runner: its template or the permissions are wrong."""

    code = "launch_rejected"
