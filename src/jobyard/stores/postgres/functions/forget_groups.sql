-- Delete rows of idle groups: a bounded number is examined per call, round after round.
-- in: queue, number of groups to examine. out: whether more are left in this round.
CREATE OR REPLACE FUNCTION {schema}.jobyard_forget_groups(p_queue text, p_many integer) RETURNS boolean
LANGUAGE plpgsql SET jit = off SET enable_seqscan = off
AS $$
DECLARE
  v_from text;
  v_last text;
  v_seen integer;
BEGIN
  PERFORM set_config('idle_in_transaction_session_timeout', '5s', true);  -- see jobyard_hold
  SELECT k.swept_to INTO v_from FROM {schema}.jobyard_queue k WHERE k.name = p_queue FOR NO KEY UPDATE;
  SELECT max(s.name), count(*) INTO v_last, v_seen FROM (
    SELECT g.name FROM {schema}.jobyard_group g WHERE g.queue = p_queue AND g.name > v_from
    ORDER BY g.name LIMIT p_many) s;
  DELETE FROM {schema}.jobyard_group g
  WHERE g.queue = p_queue AND g.name > v_from AND g.name <= v_last
    AND g.waiting = 0 AND g.delayed = 0 AND g.running = 0 AND NOT g.paused AND g.own_limit IS NULL;
  v_last := CASE WHEN v_seen = p_many THEN v_last ELSE '' END;
  UPDATE {schema}.jobyard_queue k SET swept_to = v_last WHERE k.name = p_queue AND k.swept_to <> v_last;
  RETURN v_last <> '';
END
$$;
