-- Some come and some go: then it matters who was there in between, so each event is applied alone.
-- in: the queue's name, max_per_group, last place and due jobs; the events in order.
-- out: lowest = the first place of a group that is open now; joined_at and joined = the queue's new place, if
-- it had nothing due.
CREATE OR REPLACE FUNCTION {schema}.jobyard_fold_in_steps(
  p_queue text, p_max_per_group bigint, p_line_last bigint, p_waiting bigint,
  e_group text[], e_waiting bigint[], e_delayed bigint[], e_running bigint[], e_ord bigint[], e_at bigint[],
  e_number bigint[], OUT lowest bigint, OUT joined_at bigint, OUT joined bigint
) LANGUAGE plpgsql AS $$
DECLARE
  present bigint := p_waiting;
  place bigint;
  is_open boolean;
BEGIN
  FOR k IN 1 .. cardinality(e_group) LOOP
    IF present <= 0 AND e_waiting[k] > 0 THEN
      joined_at := e_at[k];
      joined := e_number[k];
    END IF;
    present := present + e_waiting[k];
    INSERT INTO {schema}.jobyard_group AS g (queue, name, turn, waiting, delayed, running, open, head)
    VALUES (p_queue, e_group[k], p_line_last + k, e_waiting[k], e_delayed[k], e_running[k],
            e_waiting[k] > 0 AND (e_group[k] = '' OR p_max_per_group IS NULL OR e_running[k] < p_max_per_group),
            coalesce(e_ord[k], 9223372036854775807))
    ON CONFLICT (queue, name) DO UPDATE SET
      turn = CASE WHEN g.waiting <= 0 AND excluded.waiting > 0 THEN excluded.turn ELSE g.turn END,
      waiting = g.waiting + excluded.waiting,
      delayed = g.delayed + excluded.delayed,
      running = g.running + excluded.running,
      head = least(g.head, excluded.head),
      open = g.waiting + excluded.waiting > 0 AND NOT g.paused AND g.running + excluded.running <
        coalesce(g.own_limit, CASE WHEN g.name <> '' THEN p_max_per_group END, 9007199254740992)
    RETURNING g.turn, g.open INTO place, is_open;
    IF is_open THEN
      lowest := least(lowest, place);
    END IF;
  END LOOP;
END
$$;
