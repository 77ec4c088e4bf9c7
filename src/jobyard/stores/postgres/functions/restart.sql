-- Continue a running job with another payload and without its history, except its signals.
-- in: sequence, payload, scopes and keys of the signals to remove as well. The caller has locked the lease.
CREATE OR REPLACE FUNCTION {schema}.jobyard_restart(p_sequence bigint, p_payload bytea, p_scope text[], p_key text[])
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  -- A checkpoint that its caller gave up may still be running: its entry must not outlive the history.
  PERFORM FROM {schema}.jobyard_lease l WHERE l.sequence = p_sequence FOR UPDATE;
  UPDATE {schema}.jobyard_job j SET payload = p_payload WHERE j.sequence = p_sequence;
  PERFORM FROM {schema}.jobyard_scope x WHERE x.sequence = p_sequence ORDER BY x.scope FOR NO KEY UPDATE;
  DELETE FROM {schema}.jobyard_history h WHERE h.sequence = p_sequence AND NOT starts_with(h.scope, 'signal:');
  DELETE FROM {schema}.jobyard_history h USING unnest(p_scope, p_key) u(scope, key)
  WHERE h.sequence = p_sequence AND h.scope = u.scope AND h.key = u.key;
  -- The rows of scopes stay, because writers lock them.
  UPDATE {schema}.jobyard_scope x SET entries = CASE WHEN starts_with(x.scope, 'signal:') THEN (
    SELECT count(*) FROM {schema}.jobyard_history h WHERE h.sequence = p_sequence AND h.scope = x.scope) ELSE 0 END
  WHERE x.sequence = p_sequence AND (x.scope = ANY (p_scope) OR NOT starts_with(x.scope, 'signal:'));
END
$$;
