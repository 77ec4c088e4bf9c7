-- Write entries into the histories of jobs that are not COMPLETED, and make parked workflows due whose condition now holds.
-- in: now (NULL: the server's clock); per entry: job id, scope, key, data; ids of jobs whose ends are to be forgotten.
-- out: whether a job became due.
CREATE OR REPLACE FUNCTION {schema}.jobyard_deliver(
  p_now bigint, p_id text[], p_scope text[], p_key text[], p_data bytea[], p_ended text[]
) RETURNS boolean LANGUAGE plpgsql
-- A caller's open transaction may have locked a job: the queue must not stay locked meanwhile.
SET lock_timeout = '200ms' SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
  v_now CONSTANT bigint := {schema}.jobyard_now(p_now);
  ids CONSTANT text[] := ARRAY(SELECT DISTINCT i FROM unnest(p_id) i);
  held text[];
  sequences bigint[];
  v_name text;
  t record;
  woke boolean := false;
BEGIN
  held := {schema}.jobyard_hold(ARRAY(
    SELECT DISTINCT x.queue FROM unnest(ids) i
    CROSS JOIN LATERAL (SELECT j.queue FROM {schema}.jobyard_job j WHERE j.id = i OFFSET 0) x), v_now);
  -- A caller's own transaction that parks a job locks it, too, before it counts the entries: none is missed.
  PERFORM FROM (
    SELECT x.sequence FROM unnest(ids) i
    CROSS JOIN LATERAL (SELECT j.sequence FROM {schema}.jobyard_job j WHERE j.id = i OFFSET 0) x ORDER BY 1) n
  CROSS JOIN LATERAL (SELECT FROM {schema}.jobyard_job j WHERE j.sequence = n.sequence OFFSET 0 FOR NO KEY UPDATE) j;
  sequences := ARRAY(
    SELECT CASE WHEN d.sequence IS NULL THEN x.sequence END
    FROM unnest(p_id) WITH ORDINALITY u(id, o)
    LEFT JOIN LATERAL (SELECT j.sequence FROM {schema}.jobyard_job j WHERE j.id = u.id AND j.queue = ANY (held)
                       OFFSET 0) x ON true
    LEFT JOIN LATERAL (SELECT e.sequence FROM {schema}.jobyard_done e
                       WHERE e.sequence = x.sequence AND e.state = 'COMPLETED' OFFSET 0) d ON true
    ORDER BY u.o);
  UPDATE {schema}.jobyard_job j SET flags = j.flags | 64 WHERE j.sequence = ANY (sequences) AND j.flags & 64 = 0;
  PERFORM {schema}.jobyard_write(v_now, sequences, p_scope, p_key, p_data);
  -- In the order of the entries by which their conditions came to hold.
  FOR t IN
    SELECT j.sequence, min(h.number) AS number FROM (SELECT DISTINCT s FROM unnest(sequences) s) u
    CROSS JOIN LATERAL (SELECT k.sequence, k.wake FROM {schema}.jobyard_job k
                        WHERE k.sequence = u.s AND k.waiting_for IS NOT NULL AND k.wake IS NOT NULL OFFSET 0) j
    CROSS JOIN LATERAL json_to_recordset(j.wake::json) w(scope text, count bigint)
    CROSS JOIN LATERAL (SELECT x.entries FROM {schema}.jobyard_scope x
                        WHERE x.sequence = j.sequence AND x.scope = w.scope AND x.entries >= w.count OFFSET 0) x
    CROSS JOIN LATERAL (SELECT y.number FROM {schema}.jobyard_history y
                        WHERE y.sequence = j.sequence AND y.scope = w.scope
                        ORDER BY y.number DESC OFFSET greatest(0, x.entries - w.count) LIMIT 1) h
    GROUP BY j.sequence ORDER BY 2
  LOOP
    PERFORM {schema}.jobyard_leave(t.sequence, v_now);
    PERFORM {schema}.jobyard_join(t.sequence, v_now);
    woke := true;
  END LOOP;
  IF woke THEN
    FOREACH v_name IN ARRAY held LOOP
      PERFORM {schema}.jobyard_fold_in_order(v_name, v_now, NULL);
    END LOOP;
    PERFORM nextval('{schema}.jobyard_revision');
  END IF;
  IF cardinality(p_ended) > 0 THEN
    DELETE FROM {schema}.jobyard_ended e WHERE e.job_id = ANY (p_ended);
  END IF;
  RETURN woke;
END
$$;
