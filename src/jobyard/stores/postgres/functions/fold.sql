-- Apply the inbox, and delayed jobs that are due, to a queue whose row the caller has locked.
-- in: queue, now, limit for inbox rows and for due jobs: what is left waits for the next call.
-- Counts of groups change only here and in a claim.
CREATE OR REPLACE FUNCTION {schema}.jobyard_fold(p_queue text, p_now bigint, p_limit integer) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  q record;
  horizon bigint;
  t record;
BEGIN
  SELECT k.inbox_from, k.max_per_group, k.line_last, k.waiting,
    EXISTS (SELECT FROM {schema}.jobyard_inbox i WHERE i.queue = p_queue AND i.xid >= k.inbox_from) AS has_inbox,
    EXISTS (SELECT FROM {schema}.jobyard_delayed d
            WHERE d.queue = p_queue AND (d.run_at, d.sequence) > (k.delayed_from, k.delayed_after)
              AND d.run_at <= p_now) AS has_due
  INTO q FROM {schema}.jobyard_queue k WHERE k.name = p_queue;
  IF q.has_due THEN
    PERFORM {schema}.jobyard_fold_in_order(p_queue, p_now, p_limit);
    RETURN;
  ELSIF NOT q.has_inbox THEN
    RETURN;
  END IF;
  -- Read before the rows: older transactions have ended by then, so what they committed is among the rows.
  horizon := pg_snapshot_xmin(pg_current_snapshot())::text::bigint;
  WITH gone AS (
    DELETE FROM {schema}.jobyard_inbox WHERE ctid = ANY (ARRAY(
      SELECT i.ctid FROM {schema}.jobyard_inbox i WHERE i.queue = p_queue AND i.xid >= q.inbox_from
      ORDER BY i.xid, i.number LIMIT p_limit))
    RETURNING *),
  change AS (
    SELECT g.group_name AS name, sum(g.waiting) AS w, sum(g.delayed) AS d, sum(g.running) AS r, min(g.ord) AS o,
           min(g.number) FILTER (WHERE g.waiting > 0) AS first
    FROM gone g GROUP BY g.group_name),
  changed AS (
    INSERT INTO {schema}.jobyard_group AS g (queue, name, turn, waiting, delayed, running, open, head)
    SELECT p_queue, c.name, q.line_last + row_number() OVER (ORDER BY c.first), c.w, c.d, c.r,
           c.w > 0 AND (c.name = '' OR q.max_per_group IS NULL OR c.r < q.max_per_group),
           coalesce(c.o, 9223372036854775807)
    FROM change c
    ON CONFLICT (queue, name) DO UPDATE SET
      turn = CASE WHEN g.waiting <= 0 AND excluded.waiting > 0 THEN excluded.turn ELSE g.turn END,
      waiting = g.waiting + excluded.waiting,
      delayed = g.delayed + excluded.delayed,
      running = g.running + excluded.running,
      head = least(g.head, excluded.head),
      open = g.waiting + excluded.waiting > 0 AND NOT g.paused AND g.running + excluded.running <
        coalesce(g.own_limit, CASE WHEN g.name <> '' THEN q.max_per_group END, 9007199254740992)
    RETURNING g.turn, g.open)
  SELECT count(*) AS folded, sum(g.waiting) AS w, sum(g.delayed) AS d, sum(g.running) AS r, sum(g.completed) AS completed,
         sum(g.failed) AS failed, sum(g.cancelled) AS cancelled, min(g.run_at) AS run_at, max(g.xid) AS last,
         array_agg(g.ended ORDER BY g.number) FILTER (WHERE g.ended IS NOT NULL) AS ended,
         min(g.number) FILTER (WHERE g.waiting > 0) AS joined, min(g.at) FILTER (WHERE g.waiting > 0) AS joined_at,
         (SELECT count(*) FROM change) AS groups, (SELECT min(c.turn) FROM changed c WHERE c.open) AS lowest
  INTO t FROM gone g;
  IF t.folded = p_limit THEN
    horizon := least(horizon, t.last);
  END IF;
  IF t.ended IS NOT NULL THEN
    PERFORM {schema}.jobyard_number_ends(p_queue, t.ended);
  END IF;
  UPDATE {schema}.jobyard_queue k SET
    turn_at = CASE WHEN k.waiting <= 0 AND t.w > 0 THEN t.joined_at ELSE k.turn_at END,
    turn = CASE WHEN k.waiting <= 0 AND t.w > 0 THEN t.joined ELSE k.turn END,
    waiting = k.waiting + t.w, delayed = k.delayed + t.d, running = k.running + t.r,
    completed = k.completed + t.completed, failed = k.failed + t.failed, cancelled = k.cancelled + t.cancelled,
    line_last = k.line_last + t.groups, line_from = least(k.line_from, t.lowest),
    inbox_from = greatest(k.inbox_from, horizon), delayed_from = least(k.delayed_from, t.run_at),
    delayed_after = CASE WHEN t.run_at <= k.delayed_from THEN 0 ELSE k.delayed_after END
  WHERE k.name = p_queue;
  IF t.run_at <= p_now THEN
    -- It was delayed when it was inserted, and is due now.
    PERFORM {schema}.jobyard_fold_in_order(p_queue, p_now, p_limit);
  END IF;
END
$$;
