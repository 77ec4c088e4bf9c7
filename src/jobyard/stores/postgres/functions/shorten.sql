-- Shorten leases that were written before the clock was set back.
-- in: now (NULL: the server's clock), longest in ms, sequences.
-- Locks the queues' rows, and skips leases that a caller's own transaction is settling: see jobyard_extend, also for the time.
CREATE OR REPLACE FUNCTION {schema}.jobyard_shorten(p_now bigint, p_longest bigint, p_sequences bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  forever CONSTANT bigint := 253402300799999;
  v_expires bigint;
BEGIN
  PERFORM set_config('idle_in_transaction_session_timeout', '5s', true);  -- see jobyard_hold
  PERFORM FROM {schema}.jobyard_queue k
  WHERE k.name IN (SELECT l.queue FROM {schema}.jobyard_lease l WHERE l.sequence = ANY (p_sequences))
  ORDER BY k.name FOR NO KEY UPDATE;
  v_expires := {schema}.jobyard_now(p_now) + p_longest;
  UPDATE {schema}.jobyard_lease l SET expires_at = v_expires
  WHERE l.ctid = ANY (ARRAY(
    SELECT k.ctid FROM {schema}.jobyard_lease k
    WHERE k.sequence = ANY (p_sequences) AND k.expires_at > v_expires AND k.expires_at < forever
    FOR NO KEY UPDATE SKIP LOCKED));
END
$$;
