-- Renew leases.
-- in: now (NULL: the server's clock), worker, sequences, tokens, lease in ms,
--     unseen: also other leases of the worker that began within this many ms of now (NULL: none).
-- out: per key that no longer holds: its 1-based position.
-- Locks the queues' rows: settling finds leases by ctid, which a renewal changes. A renewal counts from when it has the
-- locks: with the time before, it would shorten a lease that was granted while it waited, or write one that has expired.
-- A lease that a caller's own transaction is settling is skipped, and holds.
CREATE OR REPLACE FUNCTION {schema}.jobyard_extend(
  p_now bigint, p_worker text, p_sequences bigint[], p_tokens text[], p_lease bigint, p_unseen bigint
) RETURNS SETOF integer LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
  forever CONSTANT bigint := 253402300799999;
  v_now CONSTANT bigint := {schema}.jobyard_now(p_now);
  v_expires bigint;
  queues text[];
BEGIN
  PERFORM set_config('idle_in_transaction_session_timeout', '5s', true);  -- see jobyard_hold
  queues := ARRAY(
    SELECT DISTINCT x.queue FROM unnest(p_sequences) s(sequence)
    CROSS JOIN LATERAL (SELECT l.queue FROM {schema}.jobyard_lease l WHERE l.sequence = s.sequence OFFSET 0) x);
  IF p_unseen IS NOT NULL THEN
    queues := queues || ARRAY(SELECT DISTINCT l.queue FROM {schema}.jobyard_lease l
                              WHERE l.worker = p_worker AND abs(l.started_at - v_now) < p_unseen);
  END IF;
  PERFORM FROM {schema}.jobyard_queue k WHERE k.name = ANY (queues) ORDER BY k.name FOR NO KEY UPDATE;
  v_expires := least(forever, {schema}.jobyard_now(p_now) + p_lease);
  IF p_unseen IS NOT NULL THEN
    UPDATE {schema}.jobyard_lease l SET expires_at = v_expires
    WHERE l.ctid = ANY (ARRAY(
      SELECT k.ctid FROM {schema}.jobyard_lease k WHERE k.worker = p_worker AND k.external_id IS NULL AND abs(k.started_at - v_now) < p_unseen
        AND k.queue = ANY (queues)
      FOR NO KEY UPDATE SKIP LOCKED));
  END IF;
  UPDATE {schema}.jobyard_lease l SET expires_at = v_expires
  WHERE l.ctid = ANY (ARRAY(
    SELECT x.tid FROM unnest(p_sequences, p_tokens) u(sequence, token)
    CROSS JOIN LATERAL (
      SELECT k.ctid AS tid FROM {schema}.jobyard_lease k
      WHERE k.sequence = u.sequence AND k.token = u.token AND k.external_id IS NULL AND k.expires_at <> v_expires
      FOR NO KEY UPDATE SKIP LOCKED) x));
  RETURN QUERY
  SELECT u.o::integer FROM unnest(p_sequences, p_tokens) WITH ORDINALITY u(sequence, token, o)
  WHERE NOT EXISTS (SELECT FROM {schema}.jobyard_lease k WHERE k.sequence = u.sequence AND k.token = u.token)
  ORDER BY u.o;
END
$$;
