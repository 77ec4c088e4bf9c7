-- The oldest due and the oldest running job of each queue. Jobs of a group are ordered by ord = (-priority << 42) +
-- sequence: jump from the first job of one priority to the first of the next.
-- in: now (NULL: the server's clock), number of groups, and of priorities in each, to examine.
-- out: per queue by name: since when its oldest due job is due, since when its oldest running job runs.
-- JIT is off, because compiling takes longer than the query.
CREATE OR REPLACE FUNCTION {schema}.jobyard_ages(p_now bigint, p_most integer)
RETURNS TABLE (name text, waiting_since bigint, running_since bigint)
LANGUAGE plpgsql SET jit = off
AS $$
#variable_conflict use_column
DECLARE
  v_now CONSTANT bigint := {schema}.jobyard_now(p_now);
BEGIN
  RETURN QUERY
  SELECT k.name, least(w.since, d.since), l.since
  FROM {schema}.jobyard_queue k
  LEFT JOIN (SELECT queue, min(started_at) AS since FROM {schema}.jobyard_lease GROUP BY queue) l ON l.queue = k.name
  LEFT JOIN LATERAL (
    SELECT min(f.since) AS since
    FROM (
      (SELECT g.name, g.head FROM {schema}.jobyard_group g WHERE g.queue = k.name AND g.waiting > 0
       ORDER BY g.name LIMIT p_most)
      UNION ALL
      -- Groups whose jobs are not folded in yet.
      SELECT i.group_name, min(i.ord) FROM (
        SELECT x.group_name, x.ord FROM {schema}.jobyard_inbox x
        WHERE x.queue = k.name AND x.xid >= k.inbox_from AND x.waiting > 0 ORDER BY x.xid, x.number LIMIT p_most) i
      GROUP BY i.group_name
    ) g
    CROSS JOIN LATERAL (
      WITH RECURSIVE heads(ord, number) AS (
        (SELECT r.ord, 1 FROM {schema}.jobyard_ready r
         WHERE r.queue = k.name AND r.group_name = g.name AND r.ord >= g.head ORDER BY r.ord LIMIT 1)
        UNION ALL
        SELECT (SELECT r.ord FROM {schema}.jobyard_ready r
                WHERE r.queue = k.name AND r.group_name = g.name AND r.ord >= ((h.ord >> 42) + 1) << 42
                ORDER BY r.ord LIMIT 1), h.number + 1
        FROM heads h WHERE h.ord IS NOT NULL AND h.number < p_most
      )
      SELECT greatest(j.created_at, j.run_at) AS since
      FROM heads h JOIN {schema}.jobyard_job j ON j.sequence = h.ord & 4398046511103
    ) f
  ) w ON true
  LEFT JOIN LATERAL (
    SELECT x.run_at AS since FROM {schema}.jobyard_delayed x
    WHERE x.queue = k.name AND (x.run_at, x.sequence) > (k.delayed_from, k.delayed_after) AND x.run_at <= v_now
    ORDER BY x.run_at, x.sequence LIMIT 1) d ON true
  ORDER BY k.name;
END
$$;
