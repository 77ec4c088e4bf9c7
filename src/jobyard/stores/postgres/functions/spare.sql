-- Back-pressure: how many more jobs may wait in queues, and in groups of theirs.
-- in: queues and groups, element by element; each may be named often.
-- out: per queue that limits what may wait (group NULL), and per group of one that limits its groups: the limit, and how
--      many more fit in.
CREATE OR REPLACE FUNCTION {schema}.jobyard_spare(p_queue text[], p_group text[])
RETURNS TABLE (queue text, group_name text, most bigint, spare bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  SELECT n.q, NULL::text, k.max_waiting, k.max_waiting - k.waiting - k.delayed
    - coalesce((SELECT sum(i.waiting + i.delayed) FROM {schema}.jobyard_inbox i WHERE i.queue = n.q), 0)::bigint
  FROM (SELECT DISTINCT u.q FROM unnest(p_queue) u(q)) n
  JOIN {schema}.jobyard_queue k ON k.name = n.q WHERE k.max_waiting IS NOT NULL;
  RETURN QUERY
  SELECT n.q, n.g, k.max_waiting_per_group, k.max_waiting_per_group - coalesce(c.waiting + c.delayed, 0)
    - coalesce((SELECT sum(i.waiting + i.delayed) FROM {schema}.jobyard_inbox i
                WHERE i.queue = n.q AND i.group_name = n.g), 0)::bigint
  FROM (SELECT DISTINCT u.q, u.g FROM unnest(p_queue, p_group) u(q, g) WHERE u.g <> '') n
  JOIN {schema}.jobyard_queue k ON k.name = n.q
  LEFT JOIN {schema}.jobyard_group c ON c.queue = n.q AND c.name = n.g
  WHERE k.max_waiting_per_group IS NOT NULL;
END
$$;
