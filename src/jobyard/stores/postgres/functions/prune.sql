-- Remove the oldest finished jobs beyond what a queue keeps; the caller has locked the queue's row.
-- in: queue, now, limit, slack: start only when more than this many are beyond, keep: sequences to leave alone.
-- out: number of removed jobs.
CREATE OR REPLACE FUNCTION {schema}.jobyard_prune(
  p_queue text, p_now bigint, p_limit integer, p_slack integer, p_keep bigint[]
) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
  q record;
  removed integer := 0;
  beyond bigint;
  many integer;
  begins bigint;
  excess bigint;
  old_until bigint;
  may_be_awaited boolean;
  tids tid[];
  sequences bigint[];
  t_stays bigint; t_last bigint; t_completed bigint; t_failed bigint; t_cancelled bigint;
  t_by_cap bigint;
BEGIN
  SELECT * INTO q FROM {schema}.jobyard_queue k WHERE k.name = p_queue;
  FOR v_bucket IN 0 .. 1 LOOP
    IF v_bucket = 0 THEN
      beyond := q.completed - q.keep_completed;
      begins := q.completed_from;
      old_until := p_now - round(q.keep_completed_seconds * 1000);
    ELSE
      beyond := q.failed + q.cancelled - q.keep_failed;
      begins := q.failed_from;
      old_until := p_now - round(q.keep_failed_seconds * 1000);
    END IF;
    many := least(beyond, p_limit - removed);
    CONTINUE WHEN beyond <= p_slack OR many <= 0;
    excess := q.completed + q.failed + q.cancelled - removed - q.keep_at_most;
    IF excess <= p_slack THEN
      excess := 0;
      -- Usually even the oldest job is young.
      CONTINUE WHEN coalesce({schema}.jobyard_oldest_end(p_queue, v_bucket, begins), old_until + 1) > old_until;
    END IF;
    may_be_awaited := cardinality(p_keep) > 0 OR EXISTS (SELECT FROM {schema}.jobyard_awaited);
    SELECT array_agg(d.tid) FILTER (WHERE d.old), array_agg(d.sequence) FILTER (WHERE d.old),
           min(d.finish) FILTER (WHERE NOT d.old) AS stays, max(d.finish) AS last,
           count(*) FILTER (WHERE d.old AND d.state = 'COMPLETED') AS completed,
           count(*) FILTER (WHERE d.old AND d.state IN ('FAILED', 'TIMEOUT')) AS failed,
           count(*) FILTER (WHERE d.old AND d.state = 'CANCELLED') AS cancelled,
           count(*) FILTER (WHERE d.old AND d.finished_at > old_until) AS by_cap
    INTO tids, sequences, t_stays, t_last, t_completed, t_failed, t_cancelled, t_by_cap
    FROM (SELECT o.tid, o.sequence, o.finish, o.state, o.finished_at,
                 (o.finished_at <= old_until OR o.place <= excess)
                 AND NOT (may_be_awaited AND (o.sequence = ANY (p_keep) OR EXISTS (
                   SELECT FROM {schema}.jobyard_awaited a WHERE a.sequence = o.sequence AND a.until > p_now)))
                 -- A workflow stays until its child jobs are told of its end.
                 AND (v_bucket = 0 OR NOT EXISTS (
                   SELECT FROM {schema}.jobyard_job j JOIN {schema}.jobyard_ended e ON e.job_id = j.id
                   WHERE j.sequence = o.sequence AND j.flags & 32 <> 0)) AS old
          FROM (SELECT f.ctid AS tid, f.sequence, f.finish, f.state, f.finished_at,
                       row_number() OVER (ORDER BY f.finish) AS place
                FROM {schema}.jobyard_done f
                WHERE f.queue = p_queue AND f.bucket = v_bucket AND f.finish >= greatest(begins, 1)
                ORDER BY f.finish LIMIT many) o) d;
    CONTINUE WHEN t_last IS NULL;
    begins := coalesce(t_stays, t_last + 1);
    IF sequences IS NOT NULL THEN
      DELETE FROM {schema}.jobyard_done WHERE ctid = ANY (tids);
      PERFORM {schema}.jobyard_drop(sequences);
      removed := removed + cardinality(sequences);
    END IF;
    UPDATE {schema}.jobyard_queue k SET
      completed = k.completed - t_completed, failed = k.failed - t_failed, cancelled = k.cancelled - t_cancelled,
      removed_by_cap = k.removed_by_cap + t_by_cap,
      removed_by_cap_at = CASE WHEN t_by_cap > 0 THEN p_now ELSE k.removed_by_cap_at END,
      completed_from = CASE WHEN v_bucket = 0 THEN begins ELSE k.completed_from END,
      failed_from = CASE WHEN v_bucket = 1 THEN begins ELSE k.failed_from END
    WHERE k.name = p_queue;
  END LOOP;
  RETURN removed;
END
$$;
