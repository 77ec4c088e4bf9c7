-- Back-pressure: the number of jobs that may still be inserted into queues and their groups.
-- in: queues and groups, element by element, with repetitions.
-- out: per queue that limits its waiting jobs (group NULL), and per group of a queue that limits its groups: the limit,
--     and the number of jobs that still fit.
CREATE OR REPLACE FUNCTION {schema}.jobyard_spare(p_queue text[], p_group text[])
RETURNS TABLE (queue text, group_name text, most bigint, spare bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  SELECT n.q, NULL::text, k.max_waiting, k.max_waiting - k.waiting - k.delayed
    - coalesce((SELECT sum(i.waiting + i.delayed) FROM {schema}.jobyard_inbox i WHERE i.queue = n.q), 0)::bigint
  FROM (SELECT DISTINCT u.q FROM unnest(p_queue) u(q)) n
  CROSS JOIN LATERAL (SELECT x.max_waiting, x.waiting, x.delayed FROM {schema}.jobyard_queue x
                      WHERE x.name = n.q AND x.max_waiting IS NOT NULL OFFSET 0) k;
  RETURN QUERY
  SELECT n.q, n.g, k.max_waiting_per_group, k.max_waiting_per_group - coalesce(c.waiting + c.delayed, 0)
    - coalesce((SELECT sum(i.waiting + i.delayed) FROM {schema}.jobyard_inbox i
                WHERE i.queue = n.q AND i.group_name = n.g), 0)::bigint
  FROM (SELECT DISTINCT u.q, u.g FROM unnest(p_queue, p_group) u(q, g) WHERE u.g <> '') n
  CROSS JOIN LATERAL (SELECT x.max_waiting_per_group FROM {schema}.jobyard_queue x
                      WHERE x.name = n.q AND x.max_waiting_per_group IS NOT NULL OFFSET 0) k
  LEFT JOIN LATERAL (SELECT x.waiting, x.delayed FROM {schema}.jobyard_group x
                     WHERE x.queue = n.q AND x.name = n.g OFFSET 0) c ON true;
END
$$;
