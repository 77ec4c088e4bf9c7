-- name: exchange(the fields of `ExchangeArguments`) -> one row per lease, then one row with the rest of the response
SELECT * FROM {schema}.jobyard_exchange(
  p_now => $1, p_worker => $2, p_token => $3, p_queues => $4, p_wanted => $5, p_lease => $6,
  c_sequence => $7, c_token => $8, c_result => $9, p_keep => $10,
  o_sequence => $11, o_token => $12, o_to => $13, o_counted => $14, o_died => $15, o_delay => $16, o_signal => $17,
  o_park => $18, o_external => $19, o_result => $20, o_reason => $21, o_error => $22,
  p_expired_before => $23, p_impatient => $24, p_from => $25, o_wake => $26)

-- name: unacknowledged_leases(worker, tokens of its exchanges whose response was lost)
-- -> the leases that these granted: id, sequence, token, attempt, deaths, cancel reason (NULL for a workflow that ends
-- itself), whether it is a workflow that has begun
SELECT j.id, l.sequence, l.token, l.attempt, j.deaths,
  CASE WHEN j.cancel IS NOT NULL OR j.flags & 32 = 0 OR NOT {schema}.jobyard_has_begun(j.sequence) THEN l.cancel END,
  j.flags & 32 <> 0 AND {schema}.jobyard_has_begun(j.sequence)
FROM {schema}.jobyard_lease l
JOIN {schema}.jobyard_job j ON j.sequence = l.sequence
WHERE l.worker = $1 AND l.token = ANY ($2::text[]) AND l.external_id IS NULL ORDER BY l.sequence

-- name: has_work(now, queues (empty: all))
-- -> whether a job may be claimable, number of jobs whose cancel was requested, ms until the next delayed job is due
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
                   WHERE d.queue = k.name AND (d.run_at, d.sequence) > (k.delayed_from, k.delayed_after)
                     AND d.run_at <= n.now)))
      OR EXISTS (SELECT FROM {schema}.jobyard_inbox i
                 WHERE i.queue = k.name AND i.xid >= k.inbox_from AND i.running < 0))),
  (SELECT count(*) FROM {schema}.jobyard_lease l WHERE l.cancel IS NOT NULL),
  (SELECT d.run_at - n.now FROM {schema}.jobyard_delayed d
   WHERE d.run_at > n.now AND d.run_at < 253402300799999 ORDER BY d.run_at LIMIT 1)
FROM (SELECT {schema}.jobyard_now($1) AS now) n
