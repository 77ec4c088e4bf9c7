"""The data of the dashboard's overview: numbers, charts, and the line of groups of a queue."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from jobyard.api.schemas.charts import ChartView, LineView, OverviewView, Range
from jobyard.api.schemas.jobs import Name, RequestSchema
from jobyard.domain.access import Permission
from jobyard.github.tickets import QUEUE as RUNNER_QUEUE
from jobyard.operations.chart_log import ChartRange
from jobyard.operations.group_line import line_view
from jobyard.operations.workflow_catalog import may_run
from jobyard.server.authorization import visible_queue
from jobyard.server.problems import HttpError
from jobyard.server.route import RequestContext, Routes

ROUTES = Routes("overview")


class ChartQuery(RequestSchema, frozen=True, kw_only=True):
    range: Range = "1h"
    queue: Name | None = None


class LineQuery(RequestSchema, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


def require_whole_queues(context: RequestContext) -> tuple[str, ...]:
    """The queues of the token; empty: all. A token that sees only a part of a queue must not see its counts."""
    if not context.principal.has_whole_queues:
        detail = "The token is restricted to groups or kinds and cannot see the numbers of whole queues."
        raise HttpError(403, "out_of_scope", detail)
    return context.principal.queues


@ROUTES.add("GET", "/v1/overview", Permission.WATCH, response=OverviewView)
async def get_overview(context: RequestContext) -> OverviewView:
    """Get the state of the platform in one response: numbers, queues, and what needs attention."""
    dependencies, own = context.dependencies, require_whole_queues(context)
    view = await dependencies.overview.view(own)
    sees_runners = dependencies.runners is not None and (not own or RUNNER_QUEUE in own)
    return msgspec.structs.replace(
        view,
        workflows=workflow_count(context),
        runners=await dependencies.overview.running(RUNNER_QUEUE) if sees_runners else None,
    )


def workflow_count(context: RequestContext) -> int:
    """Number of workflow files and workflow functions that the token may run."""
    dependencies, principal = context.dependencies, context.principal
    files = len(dependencies.workflows.definitions) if may_run(principal) else 0
    factory = dependencies.job_factory
    kinds = factory.kinds() or ()
    return files + sum(each.is_workflow and factory.may_submit(principal, each.name) for each in kinds)


@ROUTES.add("GET", "/v1/charts", Permission.WATCH, query=ChartQuery, response=ChartView)
async def get_chart(context: RequestContext) -> ChartView:
    """Get counts, queue lengths and percentiles over time, of one queue or of all."""
    query: ChartQuery = context.query
    own = require_whole_queues(context)
    if query.queue is not None and own and query.queue not in own:
        raise HttpError(404, "queue_not_found", f'Queue "{query.queue}" not found.')
    queues = (query.queue,) if query.queue is not None else own or None
    return await context.dependencies.charts.chart(ChartRange(query.range), queues)


@ROUTES.add("GET", "/v1/queues/{queue}/line", Permission.WATCH, query=LineQuery, response=LineView)
async def get_line(context: RequestContext) -> LineView:
    """Get the line of groups with waiting jobs, front first: whose turn it is, and what holds the others back."""
    require_whole_queues(context)
    info = await visible_queue(context)
    return line_view(info, await context.dependencies.store.line(info.name, context.query.limit))
