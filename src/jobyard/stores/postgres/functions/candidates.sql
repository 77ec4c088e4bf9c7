-- The queues that an exchange must lock: those with a job to claim, or with rows to fold in. When there are very many, the
-- first by their turns: they go to the end of the line, or have nothing left to fold in, and the next call takes others.
-- Not while settling: queues that are full are among them then, and would stay the first.
-- in: now, names (empty: all), whether jobs are claimed, settling: whether slots are about to come free.
CREATE OR REPLACE FUNCTION {schema}.jobyard_candidates(
  p_now bigint, p_queues text[], p_claiming boolean, p_settling boolean
) RETURNS text[] LANGUAGE plpgsql AS $$
BEGIN
  RETURN ARRAY(
    SELECT k.name FROM {schema}.jobyard_queue k
    WHERE (cardinality(p_queues) = 0 OR k.name = ANY (p_queues)) AND (
      EXISTS (SELECT FROM {schema}.jobyard_inbox i WHERE i.queue = k.name AND i.xid >= k.inbox_from)
      OR EXISTS (SELECT FROM {schema}.jobyard_delayed d
                 WHERE d.queue = k.name AND (d.run_at, d.sequence) > (k.delayed_from, k.delayed_after)
                   AND d.run_at <= p_now)
      OR (p_claiming AND k.waiting > 0 AND NOT k.paused AND (p_settling
        OR ((k.max_running IS NULL OR k.running < k.max_running)
          AND EXISTS (SELECT FROM {schema}.jobyard_group g
                      WHERE g.queue = k.name AND g.open AND g.turn >= k.line_from)))))
    ORDER BY k.turn_at, k.turn LIMIT CASE WHEN NOT p_settling THEN 200 END);
END
$$;
