"""A job that GitHub does not show: it is held back for a while before it counts as ended."""

from __future__ import annotations

from jobyard.domain.runners.github_job import MISSING_MS, GitHubJob, confirmed, is_ended_by_absence, missing
from jobyard.domain.runners.plan import plan

JOB = GitHubJob(job_id=1, run_id=1, org_name="acme", repo_full_name="acme/web", profile="linux")


def test_one_answer_does_not_end_a_job() -> None:
    held = missing(JOB, 1_000, "not_visible: no")
    assert not is_ended_by_absence(held, 1_000)
    assert plan([held], [], [], 60_000).add == ()
    again = missing(held, 300_000, "not_visible: no")
    assert again.missing_since == 1_000
    assert is_ended_by_absence(again, 1_000 + MISSING_MS)


def test_a_job_that_is_shown_again_gets_a_runner() -> None:
    shown = confirmed(missing(JOB, 1_000, "not_visible: no"), 2_000)
    assert (shown.blocked, shown.missing_since, is_ended_by_absence(shown, 10**9)) == ("", 0, False)
    assert plan([shown], [], [], 60_000).add == (shown,)
