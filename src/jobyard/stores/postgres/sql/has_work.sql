-- in: now (NULL: the server's), queues (empty: all).
-- out: whether something may be claimable, how many jobs are asked to stop, ms until the next delayed job is due.
SELECT
  EXISTS (
    SELECT FROM {schema}.jobyard_queue k
    WHERE (cardinality($2::text[]) = 0 OR k.name = ANY ($2::text[])) AND NOT k.paused AND (
      ((k.max_running IS NULL OR k.running < k.max_running) AND (
        (k.waiting > 0 AND EXISTS (
          SELECT FROM {schema}.jobyard_group g WHERE g.queue = k.name AND g.open AND g.turn >= k.line_from))
        OR EXISTS (SELECT FROM {schema}.jobyard_inbox i
                   WHERE i.queue = k.name AND i.xid >= k.inbox_from AND i.waiting > 0)
        OR EXISTS (SELECT FROM {schema}.jobyard_delayed d
                   WHERE d.queue = k.name AND d.run_at >= k.delayed_from AND d.run_at <= n.now)))
      OR EXISTS (SELECT FROM {schema}.jobyard_inbox i
                 WHERE i.queue = k.name AND i.xid >= k.inbox_from AND i.running < 0))),
  (SELECT count(*) FROM {schema}.jobyard_lease l WHERE l.cancel IS NOT NULL),
  (SELECT d.run_at - n.now FROM {schema}.jobyard_delayed d
   WHERE d.run_at > n.now AND d.run_at < 253402300799999 ORDER BY d.run_at LIMIT 1)
FROM (SELECT {schema}.jobyard_now($1) AS now) n
