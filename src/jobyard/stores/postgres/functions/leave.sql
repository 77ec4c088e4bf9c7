-- Remove a PENDING job from the ready or the delayed jobs; the caller has locked the queue's row.
-- in: sequence, now. out: whether it was ready; NULL when it was neither.
CREATE OR REPLACE FUNCTION {schema}.jobyard_leave(p_sequence bigint, p_now bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  j record;
  in_line boolean;
BEGIN
  SELECT k.queue, k.group_name, k.priority, k.run_at INTO j FROM {schema}.jobyard_job k WHERE k.sequence = p_sequence;
  DELETE FROM {schema}.jobyard_ready r WHERE r.queue = j.queue AND r.group_name = j.group_name
    AND r.ord = (-j.priority::bigint << 42) + p_sequence;
  in_line := FOUND;
  IF NOT in_line THEN
    DELETE FROM {schema}.jobyard_delayed d WHERE d.queue = j.queue AND d.run_at = j.run_at AND d.sequence = p_sequence;
    IF NOT FOUND THEN
      RETURN NULL;
    END IF;
  END IF;
  INSERT INTO {schema}.jobyard_inbox (queue, xid, number, group_name, at, waiting, delayed)
  VALUES (j.queue, pg_current_xact_id()::text::bigint, nextval('{schema}.jobyard_turn'), j.group_name, p_now,
          -in_line::integer, -(NOT in_line)::integer);
  RETURN in_line;
END
$$;
