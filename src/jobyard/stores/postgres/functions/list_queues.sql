-- The queues with their counts, to which what is not folded in yet is added: inbox rows, and due jobs up to a cap.
-- in: now (NULL: the server's clock), cap per queue. out: name, settings in the order of `QueueSettings`, paused, counts;
--     by name.
-- JIT is off, because compiling takes longer than the query.
CREATE OR REPLACE FUNCTION {schema}.jobyard_list_queues(p_now bigint, p_cap integer)
RETURNS TABLE (
  name text, max_running bigint, max_per_group bigint, max_waiting bigint, max_waiting_per_group bigint,
  keep_completed bigint, keep_failed bigint, keep_completed_seconds double precision,
  keep_failed_seconds double precision, keep_at_most bigint, paused boolean,
  waiting bigint, delayed bigint, running bigint, completed bigint, failed bigint, cancelled bigint,
  removed_by_cap bigint, removed_by_cap_at bigint
)
LANGUAGE plpgsql SET jit = off
AS $$
#variable_conflict use_column
DECLARE
  v_now CONSTANT bigint := {schema}.jobyard_now(p_now);
BEGIN
  RETURN QUERY
  SELECT k.name, k.max_running, k.max_per_group, k.max_waiting, k.max_waiting_per_group, k.keep_completed, k.keep_failed,
    k.keep_completed_seconds, k.keep_failed_seconds, k.keep_at_most, k.paused, k.waiting + i.waiting + d.due, k.delayed + i.delayed - d.due, k.running + i.running,
    k.completed + i.completed, k.failed + i.failed, k.cancelled + i.cancelled,
    k.removed_by_cap, k.removed_by_cap_at
  FROM {schema}.jobyard_queue k
  CROSS JOIN LATERAL (
    SELECT coalesce(sum(x.waiting), 0) AS waiting, coalesce(sum(x.delayed), 0) AS delayed,
      coalesce(sum(x.running), 0) AS running, coalesce(sum(x.completed), 0) AS completed,
      coalesce(sum(x.failed), 0) AS failed, coalesce(sum(x.cancelled), 0) AS cancelled
    FROM {schema}.jobyard_inbox x WHERE x.queue = k.name AND x.xid >= k.inbox_from) i
  CROSS JOIN LATERAL (SELECT count(*) AS due FROM (
    SELECT FROM {schema}.jobyard_delayed x
    WHERE x.queue = k.name AND (x.run_at, x.sequence) > (k.delayed_from, k.delayed_after) AND x.run_at <= v_now
    ORDER BY x.run_at, x.sequence LIMIT p_cap) x) d
  ORDER BY k.name;
END
$$;
