-- As jobyard_fold, one event after the other: needed when delayed jobs become due, or groups both gain and lose jobs,
-- because then the order of the events decides the turns.
-- in: queue, whose row the caller has locked; now. out: whether more is left than one call should apply.
CREATE OR REPLACE FUNCTION {schema}.jobyard_fold_in_steps(p_queue text, p_now bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
  at_once CONSTANT integer := 5000;
  q record;
  e record;
  horizon bigint;
  i_group text[]; i_waiting bigint[]; i_delayed bigint[]; i_running bigint[]; i_ord bigint[]; i_number bigint[];
  i_at bigint[];
  d_group text[]; d_ord bigint[]; d_at bigint[]; d_number bigint[]; d_parked bigint[];
  t_completed bigint; t_failed bigint; t_cancelled bigint; t_run_at bigint; t_ended bigint[]; t_last bigint;
  folded integer; promoted integer;
  present bigint;
  steps integer := 0;
  place bigint;
  is_open boolean;
BEGIN
  SELECT * INTO q FROM {schema}.jobyard_queue k WHERE k.name = p_queue;
  present := q.waiting;
  horizon := pg_snapshot_xmin(pg_current_snapshot())::text::bigint;
  WITH gone AS (
    DELETE FROM {schema}.jobyard_inbox WHERE ctid = ANY (ARRAY(
      SELECT i.ctid FROM {schema}.jobyard_inbox i WHERE i.queue = p_queue AND i.xid >= q.inbox_from
      ORDER BY i.xid, i.number LIMIT at_once))
    RETURNING *)
  SELECT array_agg(g.group_name), array_agg(g.waiting), array_agg(g.delayed), array_agg(g.running), array_agg(g.ord),
         array_agg(g.number), array_agg(g.at), sum(g.completed), sum(g.failed), sum(g.cancelled), min(g.run_at),
         array_agg(g.ended ORDER BY g.number) FILTER (WHERE g.ended IS NOT NULL), max(g.xid), count(*)
  INTO i_group, i_waiting, i_delayed, i_running, i_ord, i_number, i_at, t_completed, t_failed, t_cancelled, t_run_at,
       t_ended, t_last, folded
  FROM gone g;
  q.inbox_from := greatest(q.inbox_from, CASE WHEN folded = at_once THEN least(horizon, t_last) ELSE horizon END);
  q.delayed_from := least(q.delayed_from, t_run_at);
  IF t_ended IS NOT NULL THEN
    PERFORM {schema}.jobyard_number_ends(p_queue, t_ended);
  END IF;

  WITH due AS MATERIALIZED (
    SELECT d.ctid AS tid, d.run_at, d.sequence, d.group_name, d.ord, d.used, d.flags, d.parked
    FROM {schema}.jobyard_delayed d WHERE d.queue = p_queue AND d.run_at >= q.delayed_from AND d.run_at <= p_now
    ORDER BY d.run_at, d.sequence LIMIT at_once),
  gone AS (DELETE FROM {schema}.jobyard_delayed WHERE ctid = ANY (ARRAY(SELECT tid FROM due))),
  come AS (INSERT INTO {schema}.jobyard_ready SELECT p_queue, group_name, ord, used, flags FROM due)
  -- Numbered before all that was inserted in the same millisecond.
  SELECT array_agg(d.group_name), array_agg(d.ord), array_agg(d.run_at), array_agg(d.sequence - 4611686018427387904),
         array_agg(d.sequence) FILTER (WHERE d.parked), count(*)
  INTO d_group, d_ord, d_at, d_number, d_parked, promoted FROM due d;
  IF d_parked IS NOT NULL THEN
    UPDATE {schema}.jobyard_job j SET waiting_for = NULL WHERE j.sequence = ANY (d_parked);
  END IF;
  IF promoted > 0 THEN
    q.delayed_from := d_at[promoted];
  END IF;

  -- In the order of time, as if each job had joined the line at its own instant.
  FOR e IN
    SELECT * FROM (
      SELECT x.g, x.w, x.d, x.r, x.o, x.n, x.at
      FROM unnest(i_group, i_waiting, i_delayed, i_running, i_ord, i_number, i_at) x(g, w, d, r, o, n, at)
      UNION ALL
      SELECT y.g, 1, -1, 0, y.o, y.n, y.at FROM unnest(d_group, d_ord, d_number, d_at) y(g, o, n, at)) events
    ORDER BY at, n
  LOOP
    steps := steps + 1;
    IF present <= 0 AND e.w > 0 THEN
      q.turn_at := e.at;
      q.turn := e.n;
    END IF;
    present := present + e.w;
    q.delayed := q.delayed + e.d;
    q.running := q.running + e.r;
    INSERT INTO {schema}.jobyard_group AS g (queue, name, turn, waiting, delayed, running, open, head)
    VALUES (p_queue, e.g, q.line_last + steps, e.w, e.d, e.r,
            e.w > 0 AND (e.g = '' OR q.max_per_group IS NULL OR e.r < q.max_per_group), coalesce(e.o, 9223372036854775807))
    ON CONFLICT (queue, name) DO UPDATE SET
      turn = CASE WHEN g.waiting <= 0 AND excluded.waiting > 0 THEN excluded.turn ELSE g.turn END,
      waiting = g.waiting + excluded.waiting,
      delayed = g.delayed + excluded.delayed,
      running = g.running + excluded.running,
      head = least(g.head, excluded.head),
      open = g.waiting + excluded.waiting > 0 AND NOT g.paused AND g.running + excluded.running <
        coalesce(g.own_limit, CASE WHEN g.name <> '' THEN q.max_per_group END, 9007199254740992)
    RETURNING g.turn, g.open INTO place, is_open;
    IF is_open THEN
      q.line_from := least(q.line_from, place);
    END IF;
  END LOOP;

  UPDATE {schema}.jobyard_queue k SET
    turn_at = q.turn_at, turn = q.turn, waiting = present, delayed = q.delayed, running = q.running,
    completed = k.completed + coalesce(t_completed, 0), failed = k.failed + coalesce(t_failed, 0),
    cancelled = k.cancelled + coalesce(t_cancelled, 0), line_last = k.line_last + steps, line_from = q.line_from,
    inbox_from = q.inbox_from, delayed_from = q.delayed_from
  WHERE k.name = p_queue;
  RETURN folded = at_once OR promoted = at_once;
END
$$;
