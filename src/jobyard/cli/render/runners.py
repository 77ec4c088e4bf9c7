"""GitHub jobs, runners and organizations as rows and pages of text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.markup import escape

from jobyard.api.schemas.runners import RunnerJobDetails, RunnerJobView, RunnerOrgList, RunnerOrgView, RunnerPodView
from jobyard.cli.render.output import age, duration, name, number, usage, when
from jobyard.domain.instant import Instant, instant
from jobyard.domain.runners.github_job import GitHubJobState
from jobyard.domain.runners.runner import RunnerState
from jobyard.domain.text import counted, visible

JOB_HEADINGS = (">job", "~repository", "~name", "state", ">for", "~reason")
POD_HEADINGS = ("~runner", "~organization", "~profile", "state", ">for", ">job", "~detail")
ORG_HEADINGS = ("~organization", "runners", "limit", ">waiting", ">held back", ">blocked", ">minutes", "~")
JOB_COLOURS = {
    GitHubJobState.HELD_BACK: "dim",
    GitHubJobState.QUEUED: "yellow",
    GitHubJobState.IN_PROGRESS: "cyan",
    GitHubJobState.COMPLETED: "green",
}
MAX_NAME = 100  # of a job in a list
TROUBLED = frozenset({RunnerState.UNSCHEDULABLE, RunnerState.IMAGE_ERROR, RunnerState.NOT_ONLINE})


def job_state(value: GitHubJobState) -> str:
    return f"[{JOB_COLOURS[value]}]{value}[/]"


def job_row(job: RunnerJobView, now: Instant) -> tuple[str, ...]:
    reason = "" if job.reason is None else f"[yellow]{job.reason.code}[/] {escape(job.reason.sentence)}"
    since = job.started_at or job.queued_at
    return (
        str(job.job_id),
        escape(job.repo_full_name),
        escape(shortened(job.job_name)),
        job_state(job.state) if job.profile else "[red]unserved[/]",
        age(instant(since), now),
        reason or (f"on {escape(job.runner_name)}" if job.runner_name else ""),
    )


def shortened(name: str) -> str:
    """
    >>> len(shortened("x" * 1000)), shortened("build")
    (100, 'build')
    """
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 1]}…"


def pod_row(pod: RunnerPodView, now: Instant) -> tuple[str, ...]:
    colour = "red" if pod.state in TROUBLED else "cyan" if pod.state is RunnerState.BUSY else "default"
    return (
        escape(pod.name),
        escape(pod.org_name),
        escape(pod.profile),
        f"[{colour}]{pod.state}[/]",
        age(instant(pod.since), now),
        "-" if pod.job_id is None else str(pod.job_id),
        escape(pod.detail),
    )


def org_row(org: RunnerOrgView) -> tuple[str, ...]:
    state = "[yellow]paused[/]" if org.paused else "[red]blocked[/]" if org.limit == 0 else ""
    return (
        escape(org.name),
        usage(org.running, org.limit),
        "own" if org.own_limit is not None else "default" if org.limit is not None else "none",
        number(org.waiting),
        number(org.held_back),
        number(org.blocked),
        f"{org.minutes_this_month:,.0f}",
        state or escape(main_reason(org)),
    )


def main_reason(org: RunnerOrgView) -> str:
    """The reason of most waiting jobs."""
    waiting = {code: count for code, count in org.reasons.items() if code not in ("starting", "held_back")}
    return max(waiting, key=lambda code: waiting[code], default="")


def summary_lines(found: RunnerOrgList) -> Iterator[str]:
    """The totals; nothing for a token that may not see them."""
    totals = found.totals
    if totals is None:
        return
    yield f"{escape(totals.sentence)}."
    runners = usage(totals.running, totals.max_total, 20)
    yield f"Runners {runners}   jobs: {totals.in_progress:,} in progress, {totals.waiting:,} waiting"
    if totals.unserved:
        jobs = counted(totals.unserved, "recent job has", "recent jobs have")
        yield f"[yellow]{jobs} labels that no profile serves: jobyard runners jobs --state unserved[/]"
    if totals.paused:
        yield "[yellow]The queue runners is paused: jobyard queues resume runners[/]"
    if not totals.has_manager:
        yield "[red]No manager is running: start jobyard up, or jobyard runners manager.[/]"


def job_page(job: RunnerJobDetails, now: Instant) -> Iterator[str]:
    yield f"[bold]{visible(escape(job.job_name))}[/] {job.job_id}  {job_state(job.state)}"
    if job.reason is not None:
        yield f"  [yellow]{job.reason.code}[/]  {escape(job.sentence)}"
    else:
        yield f"  {escape(job.sentence)}"
    attempt = f", attempt {job.run_attempt}" if job.run_attempt > 1 else ""
    yield _fact("repository", f"{escape(job.repo_full_name)}   run {job.run_id}{attempt}")
    yield _fact("organization", escape(job.org_name))
    yield _fact("labels", f"{escape(', '.join(job.labels)) or '-'}   profile {name(job.profile)}")
    if job.runner is not None:
        detail = f": {job.runner.detail}" if job.runner.detail else ""
        yield _fact("runner", escape(f"{job.runner.name} ({job.runner.state}{detail})"))
    if job.url:
        yield _fact("address", escape(job.url))
    yield "\n[bold]Timeline[/]"
    yield from _timeline(job, now)


def _timeline(job: RunnerJobDetails, now: Instant) -> Iterator[str]:
    before: Instant | None = None
    for leg in job.timeline:
        at = instant(leg.at)
        took = "" if before is None else f", {duration((at - before) / 1000)} later"
        detail = f"  {escape(leg.detail)}" if leg.detail else ""
        yield _fact(leg.what.replace("_", " "), f"{when(at, now)}{took}{detail}")
        before = at


def _fact(what: str, value: str) -> str:
    return f"  {what:<14}{visible(value)}"


def in_order(orgs: Iterable[RunnerOrgView]) -> list[RunnerOrgView]:
    """Organizations with the most waiting jobs first."""
    return sorted(orgs, key=lambda org: (-org.waiting, -org.running, org.name))
