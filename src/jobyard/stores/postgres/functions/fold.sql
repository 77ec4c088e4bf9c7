-- Let what waits outside join the line of a queue whose row the caller holds: the inbox, and jobs whose time has come.
-- in: queue, now. out: whether more is left than one call should take.
-- This is the one place, beside a claim and a plain completion, where the counts of groups and queues change.
CREATE OR REPLACE FUNCTION {schema}.jobyard_fold(p_queue text, p_now bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  at_once CONSTANT integer := 20000;
  due_at_once CONSTANT integer := 5000;
  q record;
  horizon bigint;
  has_inbox boolean;
  has_due boolean;
  -- One element per event, in the order in which they came about.
  e_group text[]; e_waiting bigint[]; e_delayed bigint[]; e_running bigint[]; e_ord bigint[]; e_number bigint[];
  e_at bigint[];
  d_group text[]; d_ord bigint[]; d_at bigint[]; d_number bigint[]; d_parked bigint[];
  t_completed bigint; t_failed bigint; t_cancelled bigint; t_run_at bigint; t_ended bigint[]; t_last bigint;
  t_waiting bigint := 0; t_delayed bigint := 0; t_running bigint := 0;
  comes boolean; goes boolean;
  lowest bigint; joined_at bigint; joined bigint; events integer := 0; inboxed integer := 0; promoted integer := 0;
BEGIN
  SELECT * INTO q FROM {schema}.jobyard_queue k WHERE k.name = p_queue;
  has_inbox := EXISTS (SELECT FROM {schema}.jobyard_inbox i WHERE i.queue = p_queue AND i.xid >= q.inbox_from);
  has_due := EXISTS (SELECT FROM {schema}.jobyard_delayed d
                     WHERE d.queue = p_queue AND d.run_at >= q.delayed_from AND d.run_at <= p_now);
  IF NOT has_inbox AND NOT has_due THEN
    RETURN false;
  END IF;

  IF has_inbox THEN
    -- Taken before the rows are: whoever is older has then ended, and what it committed is among the rows.
    horizon := pg_snapshot_xmin(pg_current_snapshot())::text::bigint;
    WITH gone AS (
      DELETE FROM {schema}.jobyard_inbox WHERE ctid = ANY (ARRAY(
        SELECT i.ctid FROM {schema}.jobyard_inbox i WHERE i.queue = p_queue AND i.xid >= q.inbox_from
        ORDER BY i.xid, i.number LIMIT at_once))
      RETURNING *)
    SELECT array_agg(g.group_name), array_agg(g.waiting), array_agg(g.delayed), array_agg(g.running),
           array_agg(g.ord), array_agg(g.number), array_agg(g.at),
           sum(g.completed), sum(g.failed), sum(g.cancelled), min(g.run_at),
           array_agg(g.ended) FILTER (WHERE g.ended IS NOT NULL), max(g.xid),
           bool_or(g.waiting > 0), bool_or(g.waiting < 0), count(*)
    INTO e_group, e_waiting, e_delayed, e_running, e_ord, e_number, e_at,
         t_completed, t_failed, t_cancelled, t_run_at, t_ended, t_last, comes, goes, inboxed
    FROM (SELECT * FROM gone ORDER BY number) g;
    IF inboxed = at_once THEN
      horizon := least(horizon, t_last);
    END IF;
    q.inbox_from := greatest(q.inbox_from, horizon);
    q.delayed_from := least(q.delayed_from, coalesce(t_run_at, q.delayed_from));
    q.completed := q.completed + coalesce(t_completed, 0);
    q.failed := q.failed + coalesce(t_failed, 0);
    q.cancelled := q.cancelled + coalesce(t_cancelled, 0);
    IF t_ended IS NOT NULL THEN
      UPDATE {schema}.jobyard_done d SET finish = q.finish_last + u.o
      FROM unnest(t_ended) WITH ORDINALITY u(sequence, o) WHERE d.sequence = u.sequence;
      q.finish_last := q.finish_last + cardinality(t_ended);
    END IF;
  END IF;

  IF has_due OR t_run_at <= p_now THEN
    WITH due AS MATERIALIZED (
      SELECT d.ctid AS tid, d.run_at, d.sequence, d.group_name, d.ord, d.used, d.flags, d.parked
      FROM {schema}.jobyard_delayed d
      WHERE d.queue = p_queue AND d.run_at >= q.delayed_from AND d.run_at <= p_now
      ORDER BY d.run_at, d.sequence LIMIT due_at_once),
    gone AS (DELETE FROM {schema}.jobyard_delayed WHERE ctid = ANY (ARRAY(SELECT tid FROM due))),
    come AS (INSERT INTO {schema}.jobyard_ready SELECT p_queue, group_name, ord, used, flags FROM due)
    -- Numbered before all that came in the same millisecond.
    SELECT array_agg(d.group_name), array_agg(d.ord), array_agg(d.run_at), array_agg(d.sequence - 4611686018427387904),
           array_agg(d.sequence) FILTER (WHERE d.parked), count(*)
    INTO d_group, d_ord, d_at, d_number, d_parked, promoted FROM due d;
    IF d_parked IS NOT NULL THEN
      UPDATE {schema}.jobyard_job j SET waiting_for = NULL WHERE j.sequence = ANY (d_parked);
    END IF;
    IF promoted > 0 THEN
      q.delayed_from := d_at[promoted];
      comes := true;
      -- Who was due before somebody came stands before him, as if each had joined in its own moment.
      SELECT array_agg(m.g), array_agg(m.w), array_agg(m.d), array_agg(m.r), array_agg(m.o), array_agg(m.n), array_agg(m.at)
      INTO e_group, e_waiting, e_delayed, e_running, e_ord, e_number, e_at
      FROM (
        SELECT * FROM (
          SELECT x.g, x.w, x.d, x.r, x.o, x.n, x.at
          FROM unnest(e_group, e_waiting, e_delayed, e_running, e_ord, e_number, e_at) x(g, w, d, r, o, n, at)
          UNION ALL
          SELECT y.g, 1, -1, 0, y.o, y.n, y.at FROM unnest(d_group, d_ord, d_number, d_at) y(g, o, n, at)) both_kinds
        ORDER BY at, n) m;
    END IF;
  END IF;

  events := coalesce(cardinality(e_group), 0);
  IF comes AND goes THEN
    SELECT s.lowest, s.joined_at, s.joined INTO lowest, joined_at, joined
    FROM {schema}.jobyard_fold_in_steps(q.name, q.max_per_group, q.line_last, q.waiting,
                                        e_group, e_waiting, e_delayed, e_running, e_ord, e_at, e_number) s;
  ELSIF events > 0 THEN
    WITH change AS (
      SELECT x.g, sum(x.w) AS w, sum(x.d) AS d, sum(x.r) AS r, min(x.o) AS o, min(x.k) FILTER (WHERE x.w > 0) AS first
      FROM unnest(e_group, e_waiting, e_delayed, e_running, e_ord) WITH ORDINALITY x(g, w, d, r, o, k)
      GROUP BY x.g),
    changed AS (
      INSERT INTO {schema}.jobyard_group AS g (queue, name, turn, waiting, delayed, running, open, head)
      SELECT p_queue, c.g, q.line_last + coalesce(c.first, 0), c.w, c.d, c.r,
             c.w > 0 AND (c.g = '' OR q.max_per_group IS NULL OR c.r < q.max_per_group),
             coalesce(c.o, 9223372036854775807)
      FROM change c ORDER BY c.g
      ON CONFLICT (queue, name) DO UPDATE SET
        turn = CASE WHEN g.waiting <= 0 AND excluded.waiting > 0 THEN excluded.turn ELSE g.turn END,
        waiting = g.waiting + excluded.waiting,
        delayed = g.delayed + excluded.delayed,
        running = g.running + excluded.running,
        head = least(g.head, excluded.head),
        open = g.waiting + excluded.waiting > 0 AND NOT g.paused AND g.running + excluded.running <
          coalesce(g.own_limit, CASE WHEN g.name <> '' THEN q.max_per_group END, 9007199254740992)
      RETURNING g.turn, g.open)
    SELECT min(c.turn) FILTER (WHERE c.open) INTO lowest FROM changed c;
    IF q.waiting <= 0 AND comes THEN
      SELECT x.at, x.n INTO joined_at, joined
      FROM unnest(e_waiting, e_at, e_number) WITH ORDINALITY x(w, at, n, k) WHERE x.w > 0 ORDER BY x.k LIMIT 1;
    END IF;
  END IF;
  IF events > 0 THEN
    SELECT sum(x.w), sum(x.d), sum(x.r) INTO t_waiting, t_delayed, t_running
    FROM unnest(e_waiting, e_delayed, e_running) x(w, d, r);
  END IF;

  UPDATE {schema}.jobyard_queue k SET
    turn_at = coalesce(joined_at, k.turn_at), turn = coalesce(joined, k.turn),
    waiting = k.waiting + t_waiting, delayed = k.delayed + t_delayed, running = k.running + t_running,
    completed = q.completed, failed = q.failed, cancelled = q.cancelled,
    line_last = k.line_last + events, line_from = least(k.line_from, lowest), finish_last = q.finish_last,
    inbox_from = q.inbox_from, delayed_from = q.delayed_from
  WHERE k.name = p_queue;
  RETURN inboxed = at_once OR promoted = due_at_once;
END
$$;
