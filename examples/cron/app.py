"""Scheduled handlers: one every ten seconds, one each night in Seoul, one that jobyard.yaml schedules."""

from __future__ import annotations

from jobyard import BlockingContext, Context, Jobyard

yard = Jobyard("sqlite:///cron.db")
yard.queue("reports", max_running=2)


@yard.cron("*/10 * * * * *")
async def heartbeat(ctx: Context) -> str:
    """Six fields: the first is the second."""
    await ctx.log("still here")
    return "alive"


@yard.cron("0 2 * * *", tz="Asia/Seoul", payload={"days": 1}, missed="once")
@yard.job(queue="reports", max_attempts=4, timeout=60)
async def nightly_report(ctx: Context, days: int) -> dict[str, int]:
    """At 02:00 in Seoul; a tick that was missed because no scheduler was running is made up for."""
    async with ctx.step("collect"):
        rows = days * 24
    return {"days": days, "rows": rows}


@yard.job(queue="reports")
def clean_up(ctx: BlockingContext, keep_days: int = 30) -> str:
    """Scheduled in jobyard.yaml, with its own parameters."""
    return f"nothing older than {keep_days} days is left"
