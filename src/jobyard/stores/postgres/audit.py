"""Count everything again, what waits in the inbox included, and say where the counts disagree."""

from __future__ import annotations

from jobyard.stores.postgres.pool import Connection
from jobyard.stores.postgres.statements import Statements

# Each statement answers rows of (what, kept, counted) that disagree.
CHECKS = {
    "queue {0}: its counts say {1}, its jobs are {2} (waiting/delayed/running/completed/failed/cancelled)": """
        WITH i AS (SELECT queue, sum(waiting) w, sum(delayed) d, sum(running) r, sum(completed) c, sum(failed) f,
                     sum(cancelled) x FROM {schema}.jobyard_inbox GROUP BY queue),
        kept AS (SELECT q.name, concat_ws('/', q.waiting + coalesce(i.w, 0), q.delayed + coalesce(i.d, 0),
                   q.running + coalesce(i.r, 0), q.completed + coalesce(i.c, 0), q.failed + coalesce(i.f, 0),
                   q.cancelled + coalesce(i.x, 0)) AS says
                 FROM {schema}.jobyard_queue q LEFT JOIN i ON i.queue = q.name),
        r AS (SELECT queue, count(*) n FROM {schema}.jobyard_ready GROUP BY queue),
        d AS (SELECT queue, count(*) n FROM {schema}.jobyard_delayed GROUP BY queue),
        l AS (SELECT queue, count(*) n FROM {schema}.jobyard_lease GROUP BY queue),
        e AS (SELECT queue, count(*) FILTER (WHERE state = 'COMPLETED') c,
                count(*) FILTER (WHERE state IN ('FAILED', 'TIMEOUT')) f, count(*) FILTER (WHERE state = 'CANCELLED') x
              FROM {schema}.jobyard_done GROUP BY queue),
        counted AS (SELECT q.name, concat_ws('/', coalesce(r.n, 0), coalesce(d.n, 0), coalesce(l.n, 0), coalesce(e.c, 0),
                      coalesce(e.f, 0), coalesce(e.x, 0)) AS says
                    FROM {schema}.jobyard_queue q LEFT JOIN r ON r.queue = q.name LEFT JOIN d ON d.queue = q.name
                    LEFT JOIN l ON l.queue = q.name LEFT JOIN e ON e.queue = q.name)
        SELECT kept.name, kept.says, counted.says FROM kept JOIN counted USING (name) WHERE kept.says <> counted.says""",
    "group {0}: its counts say {1}, its jobs are {2} (waiting/delayed/running)": """
        WITH kept AS (
          SELECT queue, name, sum(w) w, sum(d) d, sum(r) r FROM (
            SELECT queue, name, waiting w, delayed d, running r FROM {schema}.jobyard_group
            UNION ALL SELECT queue, group_name, waiting, delayed, running FROM {schema}.jobyard_inbox) u GROUP BY 1, 2),
        counted AS (
          SELECT queue, name, sum(w) w, sum(d) d, sum(r) r FROM (
            SELECT queue, group_name AS name, 1 w, 0 d, 0 r FROM {schema}.jobyard_ready
            UNION ALL SELECT queue, group_name, 0, 1, 0 FROM {schema}.jobyard_delayed
            UNION ALL SELECT queue, group_name, 0, 0, 1 FROM {schema}.jobyard_lease) u GROUP BY 1, 2)
        SELECT coalesce(k.queue, c.queue) || '/' || coalesce(k.name, c.name),
          concat_ws('/', coalesce(k.w, 0), coalesce(k.d, 0), coalesce(k.r, 0)),
          concat_ws('/', coalesce(c.w, 0), coalesce(c.d, 0), coalesce(c.r, 0))
        FROM kept k FULL JOIN counted c ON c.queue = k.queue AND c.name = k.name
        WHERE (coalesce(k.w, 0), coalesce(k.d, 0), coalesce(k.r, 0)) <> (coalesce(c.w, 0), coalesce(c.d, 0), coalesce(c.r, 0))""",
    "group {0}: open says {1}, its counts say {2}": """
        SELECT g.queue || '/' || g.name, g.open, g.waiting > 0 AND NOT g.paused AND g.running <
          coalesce(g.own_limit, CASE WHEN g.name <> '' THEN q.max_per_group END, 9007199254740992) AS n
        FROM {schema}.jobyard_group g JOIN {schema}.jobyard_queue q ON q.name = g.queue
        WHERE g.open <> (g.waiting > 0 AND NOT g.paused AND g.running <
          coalesce(g.own_limit, CASE WHEN g.name <> '' THEN q.max_per_group END, 9007199254740992))""",
    "group {0} is open at place {1}, before the queue's cursor {2}": """
        SELECT g.queue || '/' || g.name, g.turn, q.line_from FROM {schema}.jobyard_group g
        JOIN {schema}.jobyard_queue q ON q.name = g.queue WHERE g.open AND g.turn < q.line_from""",
    "group {0} has a ready job at {2}, before its cursor {1}": """
        SELECT g.queue || '/' || g.name, g.head, min(r.ord) FROM {schema}.jobyard_group g
        JOIN {schema}.jobyard_ready r ON r.queue = g.queue AND r.group_name = g.name
        WHERE NOT EXISTS (SELECT FROM {schema}.jobyard_inbox i WHERE i.queue = g.queue AND i.group_name = g.name)
        GROUP BY 1, 2 HAVING min(r.ord) < g.head""",
    "queue {0} has a delayed job at {2}, before its cursor {1}": """
        SELECT q.name, q.delayed_from, min(d.run_at) FROM {schema}.jobyard_queue q
        JOIN {schema}.jobyard_delayed d ON d.queue = q.name
        WHERE NOT EXISTS (SELECT FROM {schema}.jobyard_inbox i WHERE i.queue = q.name)
        GROUP BY 1, 2 HAVING min(d.run_at) < q.delayed_from""",
    "queue {0} has a letter of transaction {2}, before its cursor {1}": """
        SELECT q.name, q.inbox_from, min(i.xid) FROM {schema}.jobyard_queue q
        JOIN {schema}.jobyard_inbox i ON i.queue = q.name GROUP BY 1, 2 HAVING min(i.xid) < q.inbox_from""",
    "queue {0} has a finished job numbered {2}, before its cursor {1}": """
        SELECT q.name, CASE d.bucket WHEN 0 THEN q.completed_from ELSE q.failed_from END, min(d.finish)
        FROM {schema}.jobyard_queue q JOIN {schema}.jobyard_done d ON d.queue = q.name AND d.finish > 0
        GROUP BY 1, 2 HAVING min(d.finish) < min(CASE d.bucket WHEN 0 THEN q.completed_from ELSE q.failed_from END)""",
    "finished job {0} of queue {1} has no number{2}": """
        SELECT d.sequence, d.queue, '' FROM {schema}.jobyard_done d
        WHERE d.finish = 0 AND NOT EXISTS (SELECT FROM {schema}.jobyard_inbox i WHERE i.queue = d.queue AND i.ended = d.sequence)""",
    "queue {0} has {1} jobs but no row{2}": """
        SELECT j.queue, count(*), '' FROM {schema}.jobyard_job j
        WHERE NOT EXISTS (SELECT FROM {schema}.jobyard_queue q WHERE q.name = j.queue) GROUP BY 1""",
    "unique key {1} of queue {0} is held by {2}, which is not active": """
        SELECT u.queue, u.key, u.job_id FROM {schema}.jobyard_unique u
        LEFT JOIN {schema}.jobyard_job j ON j.id = u.job_id LEFT JOIN {schema}.jobyard_done d ON d.sequence = j.sequence
        WHERE u.until IS NULL AND (j.sequence IS NULL OR d.sequence IS NOT NULL)""",
    "job {0} stands in {1} places{2}": """
        WITH places AS (
          SELECT ord & 4398046511103 AS s FROM {schema}.jobyard_ready
          UNION ALL SELECT sequence FROM {schema}.jobyard_delayed UNION ALL SELECT sequence FROM {schema}.jobyard_lease
          UNION ALL SELECT sequence FROM {schema}.jobyard_done),
        counted AS (SELECT s, count(*) n FROM places GROUP BY s)
        SELECT coalesce(j.sequence, c.s), coalesce(c.n, 0), CASE WHEN j.sequence IS NULL THEN ' but does not exist' ELSE '' END
        FROM {schema}.jobyard_job j FULL JOIN counted c ON c.s = j.sequence
        WHERE j.sequence IS NULL OR coalesce(c.n, 0) <> 1""",
    "job {0} stands in line at {1}, but its priority says {2}": """
        SELECT j.sequence, r.ord, (-j.priority::bigint << 42) + j.sequence FROM {schema}.jobyard_ready r
        JOIN {schema}.jobyard_job j ON j.sequence = r.ord & 4398046511103
        WHERE r.ord <> (-j.priority::bigint << 42) + j.sequence OR r.queue <> j.queue OR r.group_name <> j.group_name""",
    "{1} rows of {0} without their job{2}": """
        SELECT t, n, '' FROM (
          SELECT 'extra' AS t, count(*) AS n FROM {schema}.jobyard_extra e
            WHERE NOT EXISTS (SELECT FROM {schema}.jobyard_job j WHERE j.sequence = e.sequence)
          UNION ALL SELECT 'tag', count(*) FROM {schema}.jobyard_tag e
            WHERE NOT EXISTS (SELECT FROM {schema}.jobyard_job j WHERE j.sequence = e.sequence)) u
        WHERE n > 0""",
}


async def audit(connection: Connection, statements: Statements) -> list[str]:
    """The caller gives a connection that sees one snapshot."""
    return [
        sentence.format(*row)
        for sentence, query in CHECKS.items()
        for row in await connection.fetch(statements.qualify(query))
    ]
