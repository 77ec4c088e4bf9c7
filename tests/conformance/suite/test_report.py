"""Reports of running attempts: progress, log lines, steps."""

from __future__ import annotations

from tests.conformance.support import claim_one, get_job, new, running, settle, stale

from jobyard.domain.job import LogLine, Progress, Step
from jobyard.domain.lease import LeaseKey
from jobyard.domain.outcome import Done, Failed
from jobyard.ports.admin_store import Filter
from jobyard.ports.job_store import Report
from jobyard.ports.store import Store
from jobyard.testing.clock import ManualClock


async def test_the_last_progress_is_stored(store: Store, clock: ManualClock) -> None:
    lease = await running(store)
    for percent in (10.0, 55.5):
        progress = Progress(percent=percent, message="on it", data={"page": 3})
        assert await store.report([Report(key=lease.key, progress=progress)]) == ()
    progress = Progress(percent=55.5, message="on it", data={"page": 3}, at=clock.now())
    assert (await get_job(store, lease.job_id)).progress == progress


async def test_log_lines_keep_their_order(store: Store, clock: ManualClock) -> None:
    lease = await running(store)
    await store.report([Report(key=lease.key, lines=(LogLine(message="1"), LogLine(message="2", level="error")))])
    await store.report([Report(key=lease.key, lines=(LogLine(message="3", at=7),))])
    assert (await get_job(store, lease.job_id)).log == (
        LogLine(message="1", at=clock.now()),
        LogLine(message="2", level="error", at=clock.now()),
        LogLine(message="3", at=clock.now()),
    )


async def test_the_last_thousand_lines_are_kept(store: Store) -> None:
    lease = await running(store)
    for start in range(0, 1200, 400):
        lines = tuple(LogLine(message=str(start + number)) for number in range(400))
        await store.report([Report(key=lease.key, lines=lines)])
    log = (await get_job(store, lease.job_id)).log
    assert [line.message for line in log] == [str(number) for number in range(200, 1200)]


async def test_the_last_report_of_a_step_replaces_it_in_position(store: Store, clock: ManualClock) -> None:
    lease = await running(store)
    start = clock.now()
    steps = [
        Step(name="open", status="running"),
        Step(name="close", status="running"),
        Step(name="open", status="passed", attempt=2, data=[1]),
        Step(name="check", status="failed", started_at=7, finished_at=8),
    ]
    for step in steps:
        await store.report([Report(key=lease.key, step=step)])
        clock.advance(1)
    assert (await get_job(store, lease.job_id)).steps == (
        Step(name="open", status="passed", attempt=2, data=[1], started_at=start, finished_at=start + 2000),
        Step(name="close", status="running", started_at=start + 1000),
        Step(name="check", status="failed", started_at=start + 3000, finished_at=start + 3000),
    )


async def test_reports_are_kept_after_the_attempt(store: Store, clock: ManualClock) -> None:
    lease = await running(store)
    step = Step(name="open", status="passed")
    await store.report([Report(key=lease.key, progress=Progress(percent=1), lines=(LogLine(message="1"),), step=step)])
    await settle(store, lease, Failed(message="again"))
    clock.advance(10)
    await settle(store, await claim_one(store), Done())
    job = await get_job(store, lease.job_id)
    assert job.progress is not None
    assert [line.message for line in job.log] == ["1"]
    assert [(one.name, one.status) for one in job.steps] == [("open", "passed")]


async def test_reports_without_the_lease_are_refused(store: Store) -> None:
    held, done = await running(store), await running(store)
    await settle(store, done, Done())
    unknown = LeaseKey(new().id, 999, held.token)
    keys = [stale(held.key), held.key, done.key, unknown]
    lines = (LogLine(message="1"),)
    assert await store.report([Report(key=key, lines=lines) for key in keys]) == (stale(held.key), done.key, unknown)
    assert len((await get_job(store, held.job_id)).log) == 1
    assert (await get_job(store, done.job_id)).log == ()


async def test_lists_omit_log_lines_steps_and_tracebacks(store: Store) -> None:
    lease = await running(store)
    step = Step(name="open", status="passed")
    await store.report([Report(key=lease.key, progress=Progress(percent=1), lines=(LogLine(message="1"),), step=step)])
    await settle(store, lease, Failed(message="no", type="ValueError", traceback="line 1"))
    [job] = (await store.find(Filter())).jobs
    assert (job.log, job.steps) == ((), ())
    [error] = job.errors
    assert (error.message, error.type, error.traceback) == ("no", "ValueError", None)
    assert job.progress is not None
    assert (await get_job(store, job.id)).errors[0].traceback == "line 1"
