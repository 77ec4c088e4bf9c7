-- Make a PENDING job due now; the caller has locked the queue's row.
-- in: sequence, now.
CREATE OR REPLACE FUNCTION {schema}.jobyard_join(p_sequence bigint, p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  j record;
BEGIN
  UPDATE {schema}.jobyard_job k SET run_at = p_now, waiting_for = NULL, wake = NULL WHERE k.sequence = p_sequence
  RETURNING k.queue, k.group_name, (-k.priority::bigint << 42) + p_sequence AS ord, k.used, k.flags INTO j;
  INSERT INTO {schema}.jobyard_ready VALUES (j.queue, j.group_name, j.ord, j.used, j.flags);
  INSERT INTO {schema}.jobyard_inbox (queue, xid, number, group_name, at, waiting, ord)
  VALUES (j.queue, pg_current_xact_id()::text::bigint, nextval('{schema}.jobyard_turn'), j.group_name, p_now, 1, j.ord);
END
$$;
