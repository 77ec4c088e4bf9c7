"""Removal of a runner's registration with GitHub."""

from __future__ import annotations

from jobyard.domain.runners.runner import Runner
from jobyard.github.api import GitHubApi, RunnerRemoval


async def unregister(github: GitHubApi, runner: Runner) -> bool:
    """Whether GitHub has no registration of the runner any more; False while it has a job. Raises GitHubError."""
    runner_id = runner.runner_id
    if runner_id is None:
        # Its registration may have been requested without an answer.
        found = await github.runner_by_name(runner.scope, runner.name)
        if found is None:
            return True
        runner_id = found.id
    return await github.remove_runner(runner.scope, runner_id) is not RunnerRemoval.BUSY
