-- Delete expired unique keys, records, workers and waits for the end of a job.
-- in: now (NULL: the server's clock), limit for each kind.
CREATE OR REPLACE FUNCTION {schema}.jobyard_sweep(p_now bigint, p_limit integer) RETURNS void LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off
AS $$
DECLARE
  forever CONSTANT bigint := 253402300799999;
  v_now CONSTANT bigint := {schema}.jobyard_now(p_now);
BEGIN
  DELETE FROM {schema}.jobyard_unique WHERE ctid = ANY (ARRAY(
    SELECT u.ctid FROM {schema}.jobyard_unique u WHERE u.until < forever AND u.until <= v_now LIMIT p_limit
    FOR UPDATE SKIP LOCKED));
  DELETE FROM {schema}.jobyard_record WHERE ctid = ANY (ARRAY(
    SELECT r.ctid FROM {schema}.jobyard_record r WHERE r.expires_at < forever AND r.expires_at <= v_now LIMIT p_limit
    FOR UPDATE SKIP LOCKED));
  DELETE FROM {schema}.jobyard_worker WHERE ctid = ANY (ARRAY(
    SELECT w.ctid FROM {schema}.jobyard_worker w WHERE w.expires_at <= v_now LIMIT p_limit FOR UPDATE SKIP LOCKED));
  DELETE FROM {schema}.jobyard_awaited WHERE ctid = ANY (ARRAY(
    SELECT a.ctid FROM {schema}.jobyard_awaited a WHERE a.until <= v_now LIMIT p_limit FOR UPDATE SKIP LOCKED));
END
$$;
