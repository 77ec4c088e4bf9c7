-- Record what running workflows have done.
-- in: now (NULL: the server's clock); per checkpoint: sequence, token, payload with which the job is restarted (NULL: it
--     is not); e_*: entries, with the 1-based position of their checkpoint; t_*: signals that a restart removes, likewise.
-- out: per entry of a checkpoint whose lease holds: its 1-based position, number, time, and its data if it was there
--     before; per checkpoint whose lease is lost: minus its position.
-- Locks no queue: the locks on the leases keep the jobs running until the commit. A caller's own transaction may hold one.
-- Once per step of a workflow: every statement or setting saved is measurable.
CREATE OR REPLACE FUNCTION {schema}.jobyard_checkpoint(
  p_now bigint, p_sequence bigint[], p_token text[], p_payload bytea[],
  e_of integer[], e_key text[], e_data bytea[], t_of integer[], t_scope text[], t_key text[]
) RETURNS TABLE (place integer, number bigint, at bigint, data bytea) LANGUAGE plpgsql
SET lock_timeout = '200ms' SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
  v_now CONSTANT bigint := coalesce(p_now, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  held integer[];       -- positions of the checkpoints whose lease holds
  changes boolean;      -- whether one of their jobs is not marked as a workflow yet, or has deaths
  all_held boolean;
  numbers bigint[];     -- per entry
  written integer := 0;
BEGIN
  PERFORM set_config('idle_in_transaction_session_timeout', '5s', true);  -- see jobyard_hold
  SELECT array_agg(h.o), bool_or(h.changes) INTO held, changes FROM (
    SELECT u.o, j.changes FROM (
      SELECT n.* FROM unnest(p_sequence, p_token) WITH ORDINALITY n(sequence, token, o) ORDER BY n.sequence OFFSET 0) u
    CROSS JOIN LATERAL (SELECT FROM {schema}.jobyard_lease l WHERE l.sequence = u.sequence AND l.token = u.token
                        OFFSET 0 FOR KEY SHARE) l
    CROSS JOIN LATERAL (SELECT k.deaths <> 0 OR k.flags & 96 <> 96 AS changes FROM {schema}.jobyard_job k
                        WHERE k.sequence = u.sequence OFFSET 0) j) h;
  all_held := coalesce(cardinality(held), 0) = cardinality(p_sequence);
  IF NOT all_held THEN
    held := coalesce(held, '{}');
    RETURN QUERY SELECT -o, NULL::bigint, NULL::bigint, NULL::bytea FROM generate_series(1, cardinality(p_sequence)) o
    WHERE NOT o = ANY (held);
  END IF;
  IF changes THEN
    UPDATE {schema}.jobyard_job j SET deaths = 0, flags = j.flags | 96
    WHERE j.sequence = ANY (ARRAY(SELECT p_sequence[o] FROM unnest(held) o))
      AND (j.deaths <> 0 OR j.flags & 96 <> 96);
  END IF;
  IF cardinality(p_payload) > 0 THEN
    PERFORM {schema}.jobyard_restart(p_sequence[o], p_payload[o],
      ARRAY(SELECT u.scope FROM unnest(t_of, t_scope) u(i, scope) WHERE u.i = o),
      ARRAY(SELECT u.key FROM unnest(t_of, t_key) u(i, key) WHERE u.i = o))
    FROM (SELECT h.o FROM unnest(held) WITH ORDINALITY h(o, place) ORDER BY h.place OFFSET 0) h
    WHERE p_payload[o] IS NOT NULL;
  END IF;
  -- The lease makes this the only writer of scope '', so that scope needs no row that serialises its writers.
  numbers := ARRAY(SELECT nextval('{schema}.jobyard_entry') FROM generate_series(1, cardinality(e_of)));
  INSERT INTO {schema}.jobyard_history (sequence, scope, key, number, at, data)
  SELECT p_sequence[u.i], '', u.key, u.n, v_now, u.data
  FROM unnest(e_of, e_key, e_data, numbers) u(i, key, data, n) WHERE all_held OR u.i = ANY (held)
  ON CONFLICT DO NOTHING;
  GET DIAGNOSTICS written = ROW_COUNT;
  IF written = cardinality(e_of) THEN
    RETURN QUERY SELECT u.o::integer, u.n, v_now, NULL::bytea FROM unnest(numbers) WITH ORDINALITY u(n, o);
  ELSE
    -- By the whole key: by its parts the planner may choose the index by number, whose cost grows with the history.
    RETURN QUERY
    SELECT u.o::integer, h.number, h.at, CASE WHEN h.number <> u.n THEN h.data END
    FROM unnest(numbers, e_of, e_key) WITH ORDINALITY u(n, i, key, o)
    CROSS JOIN LATERAL (SELECT x.number, x.at, x.data FROM {schema}.jobyard_history x
                        WHERE (x.sequence, x.scope, x.key) >= (p_sequence[u.i], '', u.key)
                        ORDER BY x.sequence, x.scope, x.key LIMIT 1) h
    WHERE u.i = ANY (held);
  END IF;
END
$$;
