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
  tids tid[];
  sequences bigint[];
  t_stays bigint; t_last bigint; t_completed bigint; t_failed bigint; t_cancelled bigint;
BEGIN
  SELECT * INTO q FROM {schema}.jobyard_queue k WHERE k.name = p_queue;
  FOR v_bucket IN 0 .. 1 LOOP
    IF v_bucket = 0 THEN
      beyond := q.completed - q.keep_completed;
      begins := q.completed_from;
    ELSE
      beyond := q.failed + q.cancelled - q.keep_failed;
      begins := q.failed_from;
    END IF;
    many := least(beyond, p_limit - removed);
    CONTINUE WHEN beyond <= p_slack OR many <= 0;
    -- LIMIT before the filter by age: while all jobs are too young to be removed, only `many` rows are read.
    SELECT array_agg(d.tid) FILTER (WHERE d.old), array_agg(d.sequence) FILTER (WHERE d.old),
           min(d.finish) FILTER (WHERE NOT d.old) AS stays, max(d.finish) AS last,
           count(*) FILTER (WHERE d.old AND d.state = 'COMPLETED') AS completed,
           count(*) FILTER (WHERE d.old AND d.state IN ('FAILED', 'TIMEOUT')) AS failed,
           count(*) FILTER (WHERE d.old AND d.state = 'CANCELLED') AS cancelled
    INTO tids, sequences, t_stays, t_last, t_completed, t_failed, t_cancelled
    FROM (SELECT f.ctid AS tid, f.sequence, f.finish, f.state,
                 f.finished_at <= p_now - round(q.keep_seconds * 1000) AND NOT f.sequence = ANY (p_keep) AS old
          FROM {schema}.jobyard_done f WHERE f.queue = p_queue AND f.bucket = v_bucket AND f.finish >= greatest(begins, 1)
          ORDER BY f.finish LIMIT many) d;
    CONTINUE WHEN t_last IS NULL;
    begins := coalesce(t_stays, t_last + 1);
    IF sequences IS NOT NULL THEN
      DELETE FROM {schema}.jobyard_done WHERE ctid = ANY (tids);
      PERFORM {schema}.jobyard_drop(sequences);
      removed := removed + cardinality(sequences);
    END IF;
    UPDATE {schema}.jobyard_queue k SET
      completed = k.completed - t_completed, failed = k.failed - t_failed, cancelled = k.cancelled - t_cancelled,
      completed_from = CASE WHEN v_bucket = 0 THEN begins ELSE k.completed_from END,
      failed_from = CASE WHEN v_bucket = 1 THEN begins ELSE k.failed_from END
    WHERE k.name = p_queue;
  END LOOP;
  RETURN removed;
END
$$;
