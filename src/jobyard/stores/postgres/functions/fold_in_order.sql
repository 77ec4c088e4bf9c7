-- As jobyard_fold, in the order of the events: needed when delayed jobs become due, or groups both gain and lose jobs,
-- because then the order decides the turns. Each group is written once, however many events it has.
-- in: queue, whose row the caller has locked; now; limit for inbox rows and for due jobs; NULL: the inbox rows of this
--     transaction, all of them, and no due jobs.
CREATE OR REPLACE FUNCTION {schema}.jobyard_fold_in_order(p_queue text, p_now bigint, p_limit integer) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  own CONSTANT bigint := CASE WHEN p_limit IS NULL THEN pg_current_xact_id()::text::bigint END;
  q record;
  t record;
  horizon bigint;
  i_group text[]; i_waiting bigint[]; i_delayed bigint[]; i_running bigint[]; i_ord bigint[]; i_number bigint[];
  i_at bigint[];
  d_group text[]; d_ord bigint[]; d_at bigint[]; d_number bigint[]; d_parked bigint[];
  t_completed bigint; t_failed bigint; t_cancelled bigint; t_run_at bigint; t_ended bigint[]; t_last bigint;
  folded integer; promoted integer;
BEGIN
  SELECT * INTO q FROM {schema}.jobyard_queue k WHERE k.name = p_queue;
  horizon := pg_snapshot_xmin(pg_current_snapshot())::text::bigint;
  WITH gone AS (
    DELETE FROM {schema}.jobyard_inbox WHERE ctid = ANY (ARRAY(
      SELECT i.ctid FROM {schema}.jobyard_inbox i
      WHERE i.queue = p_queue AND i.xid >= coalesce(own, q.inbox_from) AND i.xid <= coalesce(own, 9223372036854775807)
      ORDER BY i.xid, i.number LIMIT p_limit))
    RETURNING *)
  SELECT array_agg(g.group_name), array_agg(g.waiting), array_agg(g.delayed), array_agg(g.running), array_agg(g.ord),
         array_agg(g.number), array_agg(g.at), sum(g.completed), sum(g.failed), sum(g.cancelled), min(g.run_at),
         array_agg(g.ended ORDER BY g.number) FILTER (WHERE g.ended IS NOT NULL), max(g.xid), count(*)
  INTO i_group, i_waiting, i_delayed, i_running, i_ord, i_number, i_at, t_completed, t_failed, t_cancelled, t_run_at,
       t_ended, t_last, folded
  FROM gone g;
  IF own IS NULL THEN
    q.inbox_from := greatest(q.inbox_from, CASE WHEN folded = p_limit THEN least(horizon, t_last) ELSE horizon END);
  END IF;
  IF t_run_at <= q.delayed_from THEN
    q.delayed_from := t_run_at;
    q.delayed_after := 0;
  END IF;
  IF t_ended IS NOT NULL THEN
    PERFORM {schema}.jobyard_number_ends(p_queue, t_ended);
  END IF;

  IF own IS NULL THEN
    WITH due AS MATERIALIZED (
      SELECT d.ctid AS tid, d.run_at, d.sequence, d.group_name, d.ord, d.used, d.flags, d.parked
      FROM {schema}.jobyard_delayed d
      WHERE d.queue = p_queue AND (d.run_at, d.sequence) > (q.delayed_from, q.delayed_after) AND d.run_at <= p_now
      ORDER BY d.run_at, d.sequence LIMIT p_limit),
    gone AS (DELETE FROM {schema}.jobyard_delayed WHERE ctid = ANY (ARRAY(SELECT tid FROM due))),
    come AS (INSERT INTO {schema}.jobyard_ready SELECT p_queue, group_name, ord, used, flags FROM due)
    -- Numbered before all that was inserted in the same millisecond.
    SELECT array_agg(d.group_name), array_agg(d.ord), array_agg(d.run_at), array_agg(d.sequence - 4611686018427387904),
           array_agg(d.sequence) FILTER (WHERE d.parked), count(*)
    INTO d_group, d_ord, d_at, d_number, d_parked, promoted FROM due d;
    IF d_parked IS NOT NULL THEN
      UPDATE {schema}.jobyard_job j SET waiting_for = NULL, wake = NULL WHERE j.sequence = ANY (d_parked);
    END IF;
    IF promoted > 0 THEN
      q.delayed_from := d_at[promoted];
      q.delayed_after := d_number[promoted] + 4611686018427387904;
    END IF;
  END IF;

  -- In the order of time, as if each job had joined the line at its own instant.
  WITH event AS MATERIALIZED (
    SELECT e.*, row_number() OVER line AS place, sum(e.w) OVER line - e.w AS present
    FROM (
      SELECT x.g COLLATE "C" AS g, x.w, x.d, x.r, x.o, x.n, x.at
      FROM unnest(i_group, i_waiting, i_delayed, i_running, i_ord, i_number, i_at) x(g, w, d, r, o, n, at)
      UNION ALL
      SELECT y.g, 1, -1, 0, y.o, y.n, y.at FROM unnest(d_group, d_ord, d_number, d_at) y(g, o, n, at)) e
    WINDOW line AS (ORDER BY e.at, e.n ROWS UNBOUNDED PRECEDING)),
  counted AS (
    SELECT e.*, sum(e.w) OVER mine - e.w AS gained,
      -- Each group's row is read once, at its first event.
      CASE WHEN row_number() OVER mine = 1 THEN coalesce((
        SELECT g.waiting FROM {schema}.jobyard_group g WHERE g.queue = p_queue AND g.name = e.g), 0) END AS had
    FROM event e WINDOW mine AS (PARTITION BY e.g ORDER BY e.place ROWS UNBOUNDED PRECEDING)),
  change AS (
    SELECT c.g AS name, sum(c.w) AS w, sum(c.d) AS d, sum(c.r) AS r, min(c.o) AS o,
           max(c.place) FILTER (WHERE c.w > 0 AND c.had + c.gained <= 0) AS joined
    FROM (SELECT b.g, b.w, b.d, b.r, b.o, b.place, b.gained,
                 first_value(b.had) OVER (PARTITION BY b.g ORDER BY b.place) AS had FROM counted b) c
    GROUP BY c.g),
  changed AS (
    INSERT INTO {schema}.jobyard_group AS g (queue, name, turn, waiting, delayed, running, open, head)
    SELECT p_queue, c.name, coalesce(q.line_last + c.joined, 0), c.w, c.d, c.r,
           c.w > 0 AND (c.name = '' OR q.max_per_group IS NULL OR c.r < q.max_per_group),
           coalesce(c.o, 9223372036854775807)
    FROM change c
    ON CONFLICT (queue, name) DO UPDATE SET
      turn = CASE WHEN excluded.turn > 0 THEN excluded.turn ELSE g.turn END,
      waiting = g.waiting + excluded.waiting,
      delayed = g.delayed + excluded.delayed,
      running = g.running + excluded.running,
      head = least(g.head, excluded.head),
      open = g.waiting + excluded.waiting > 0 AND NOT g.paused AND g.running + excluded.running <
        coalesce(g.own_limit, CASE WHEN g.name <> '' THEN q.max_per_group END, 9007199254740992)
    RETURNING g.turn, g.open)
  SELECT count(*) AS steps, coalesce(sum(e.w), 0) AS w, coalesce(sum(e.d), 0) AS d, coalesce(sum(e.r), 0) AS r,
         max(e.place) FILTER (WHERE e.w > 0 AND q.waiting + e.present <= 0) AS joined,
         array_agg(e.at ORDER BY e.place) AS at, array_agg(e.n ORDER BY e.place) AS n,
         (SELECT min(c.turn) FROM changed c WHERE c.open) AS lowest
  INTO t FROM event e;

  UPDATE {schema}.jobyard_queue k SET
    turn_at = coalesce(t.at[t.joined], k.turn_at), turn = coalesce(t.n[t.joined], k.turn),
    waiting = k.waiting + t.w, delayed = k.delayed + t.d, running = k.running + t.r,
    completed = k.completed + coalesce(t_completed, 0), failed = k.failed + coalesce(t_failed, 0),
    cancelled = k.cancelled + coalesce(t_cancelled, 0), line_last = k.line_last + t.steps,
    line_from = least(k.line_from, t.lowest),
    inbox_from = q.inbox_from, delayed_from = q.delayed_from, delayed_after = q.delayed_after
  WHERE k.name = p_queue;
END
$$;
