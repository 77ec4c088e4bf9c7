-- Store jobs, all or none, without locking the row of a queue unless the queue limits its waiting jobs.
-- in: now (NULL: the server's clock), queue names, then one element per job; a field that no job has may be empty.
--     A job with id NULL is skipped. One with a parent is not created when its id exists: it is its own holder then.
--     strict: lock the rows of limited queues, so that the limit is exact; else (a caller's own transaction) use the
--     counts that are visible.
-- out: per job in order: its sequence (0: not created), the holder of its unique key.
-- Raises JYF01 when a queue or group would exceed its limit, JYB01 when a job has this id.
CREATE OR REPLACE FUNCTION {schema}.jobyard_insert(
  p_now bigint, p_names text[], p_strict boolean,
  p_id text[], p_kind text[], p_queue text[], p_group text[], p_priority integer[], p_payload bytea[],
  p_max_attempts integer[], p_private bytea[], p_timeout double precision[], p_backoff bytea[], p_delay bigint[],
  p_run_at bigint[], p_unique text[], p_scope smallint[], p_period bigint[], p_tags bytea[],
  p_tag_of integer[], p_tag text[], p_parent text[] DEFAULT '{}', p_workflow boolean[] DEFAULT '{}'
) RETURNS TABLE (sequence bigint, holder text) LANGUAGE plpgsql
-- A caller's open transaction may hold a key: inserts with other keys must not wait for it.
SET lock_timeout = '200ms' SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
DECLARE
  forever CONSTANT bigint := 253402300799999;
  v_now CONSTANT bigint := {schema}.jobyard_now(p_now);
  many CONSTANT integer := cardinality(p_id);
  sequences bigint[];
  v_flags integer[];
  holders text[];
  known text[];   -- per child job that exists, or comes earlier in the call: its id
  times bigint[];
  k record;
  t record;
  unknown boolean := false;
  limited text[] := '{}';
BEGIN
  FOR k IN
    SELECT n.name, x.name IS NULL AS missing, x.max_waiting IS NOT NULL OR x.max_waiting_per_group IS NOT NULL AS limits
    FROM unnest(p_names) n(name)
    LEFT JOIN LATERAL (SELECT q.name, q.max_waiting, q.max_waiting_per_group FROM {schema}.jobyard_queue q
                       WHERE q.name = n.name OFFSET 0) x ON true
  LOOP
    unknown := unknown OR k.missing;
    IF k.limits THEN
      limited := limited || k.name;
    END IF;
  END LOOP;
  IF unknown THEN
    INSERT INTO {schema}.jobyard_queue (name) SELECT n FROM unnest(p_names) n ORDER BY n ON CONFLICT DO NOTHING;
  END IF;

  IF cardinality(p_parent) > 0 THEN
    known := ARRAY(
      SELECT CASE WHEN u.parent IS NOT NULL AND u.copy > 1 THEN u.id ELSE x.id END
      FROM (SELECT n.*, row_number() OVER (PARTITION BY n.id COLLATE "C" ORDER BY n.o) AS copy
            FROM unnest(p_id, p_parent) WITH ORDINALITY n(id, parent, o)) u
      LEFT JOIN LATERAL (SELECT j.id FROM {schema}.jobyard_job j WHERE j.id = u.id AND u.parent IS NOT NULL
                         OFFSET 0) x ON true
      ORDER BY u.o);
    p_id := ARRAY(SELECT CASE WHEN u.known IS NULL THEN u.id END
                  FROM unnest(p_id, known) WITH ORDINALITY u(id, known, o) ORDER BY u.o);
  END IF;

  IF many = 1 AND cardinality(p_unique) > 0 AND p_id[1] IS NOT NULL THEN
    holders := ARRAY[{schema}.jobyard_take_key(v_now, p_queue[1], p_unique[1], p_id[1], CASE p_scope[1]
      WHEN 0 THEN NULL WHEN 1 THEN least(forever, v_now + p_period[1]) ELSE forever END)];
  ELSIF cardinality(p_unique) > 0 OR array_position(p_id, NULL) IS NOT NULL THEN
    holders := ARRAY(SELECT CASE WHEN u.i IS NULL THEN '' END FROM unnest(p_id) WITH ORDINALITY u(i, o) ORDER BY u.o);
    -- Ordered by key, so that two calls with the same keys cannot deadlock; within a key the first of the call wins.
    WITH taken AS (
      INSERT INTO {schema}.jobyard_unique AS x (queue, key, job_id, until)
      SELECT DISTINCT ON (u.q COLLATE "C", u.key COLLATE "C") u.q, u.key, u.id,
        CASE u.scope WHEN 0 THEN NULL WHEN 1 THEN least(forever, v_now + u.period) ELSE forever END
      FROM unnest(p_queue, p_unique, p_id, p_scope, p_period) WITH ORDINALITY u(q, key, id, scope, period, o)
      WHERE u.key IS NOT NULL AND u.id IS NOT NULL ORDER BY u.q COLLATE "C", u.key COLLATE "C", u.o
      ON CONFLICT DO NOTHING RETURNING x.queue, x.key)
    SELECT array_agg(x.queue) AS q, array_agg(x.key) AS key, count(*) AS many,
      (SELECT count(*) FROM unnest(p_unique, p_id) u(key, id) WHERE u.key IS NOT NULL AND u.id IS NOT NULL) AS wanted
    INTO k FROM taken x;
    IF k.many < k.wanted THEN
      -- The other keys have a holder: an active job, one whose period has passed, or an earlier one of this call.
      FOR t IN
        SELECT u.* FROM (
          SELECT u.*, row_number() OVER (PARTITION BY u.q COLLATE "C", u.key COLLATE "C" ORDER BY u.o) AS place
          FROM unnest(p_queue, p_unique, p_id, p_scope, p_period) WITH ORDINALITY u(q, key, id, scope, period, o)
          WHERE u.key IS NOT NULL AND u.id IS NOT NULL) u
        WHERE u.place > 1 OR (u.q, u.key) NOT IN (SELECT x.q, x.key FROM unnest(k.q, k.key) x(q, key))
        ORDER BY u.q COLLATE "C", u.key COLLATE "C", u.o
      LOOP
        holders[t.o] := {schema}.jobyard_take_key(v_now, t.q, t.key, t.id, CASE t.scope
          WHEN 0 THEN NULL WHEN 1 THEN least(forever, v_now + t.period) ELSE forever END);
      END LOOP;
    END IF;
  END IF;

  -- Checked before sequences are drawn: a rejected call leaves no gap, and the error can name the id.
  SELECT u.id INTO k FROM unnest(p_id, holders) u(id, h)
  CROSS JOIN LATERAL (SELECT FROM {schema}.jobyard_job j WHERE j.id = u.id OFFSET 0) x WHERE u.h IS NULL LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION USING ERRCODE = 'JYB01', MESSAGE = 'duplicate job id',
      DETAIL = json_build_object('job_id', k.id);
  END IF;

  IF cardinality(limited) > 0 THEN
    PERFORM {schema}.jobyard_require_room(v_now, p_strict, limited, p_queue, p_group, holders);
  END IF;

  IF holders IS NULL THEN
    sequences := ARRAY(SELECT nextval('{schema}.jobyard_sequence') FROM generate_series(1, many));
  ELSE
    sequences := ARRAY(
      SELECT CASE WHEN holders[o] IS NULL THEN nextval('{schema}.jobyard_sequence') ELSE 0 END
      FROM generate_series(1, many) o);
  END IF;
  IF cardinality(p_delay) > 0 OR cardinality(p_run_at) > 0 THEN
    times := ARRAY(
      SELECT least(forever, coalesce(u.r, v_now + greatest(0, coalesce(u.d, 0))))
      FROM unnest(p_id, p_delay, p_run_at) WITH ORDINALITY u(i, d, r, o) ORDER BY u.o);
  END IF;

  IF cardinality(p_scope) > 0 OR cardinality(p_private) > 0 OR cardinality(p_tags) > 0 OR cardinality(p_parent) > 0
    OR cardinality(p_workflow) > 0 THEN
    v_flags := ARRAY(
      SELECT CASE WHEN u.scope = 0 THEN 1 ELSE 0 END | CASE WHEN u.private IS NOT NULL THEN 2 ELSE 0 END
        | CASE WHEN u.tags IS NOT NULL THEN 4 ELSE 0 END | CASE WHEN u.parent IS NOT NULL THEN 16 ELSE 0 END
        | CASE WHEN u.workflow THEN 32 ELSE 0 END
      FROM unnest(p_id, p_scope, p_private, p_tags, p_parent, p_workflow) WITH ORDINALITY
        u(i, scope, private, tags, parent, workflow, o) ORDER BY u.o);
  END IF;

  INSERT INTO {schema}.jobyard_job
    (sequence, id, kind, queue, group_name, priority, max_attempts, flags, run_at, created_at, timeout_seconds, payload,
     private_payload, backoff, unique_key, tags, parent)
  SELECT u.s, u.id, u.kind, u.q, u.g, u.p, u.m, coalesce(u.f, 0), coalesce(u.r, v_now), v_now, u.timeout, u.payload,
         u.private, u.backoff, u.key, u.tags, u.parent
  FROM unnest(sequences, p_id, p_kind, p_queue, p_group, p_priority, p_max_attempts, times, p_timeout, p_payload, p_private,
              p_backoff, p_unique, p_tags, v_flags, p_parent)
    u(s, id, kind, q, g, p, m, r, timeout, payload, private, backoff, key, tags, f, parent)
  WHERE u.s > 0;

  INSERT INTO {schema}.jobyard_ready
  SELECT u.q, u.g, (-u.p::bigint << 42) + u.s, 0, coalesce(u.f, 0)
  FROM unnest(sequences, p_queue, p_group, p_priority, times, v_flags) u(s, q, g, p, r, f)
  WHERE u.s > 0 AND (u.r IS NULL OR u.r <= v_now)
  ORDER BY u.q, u.g, u.s;  -- so that neighbours share a page
  IF times IS NOT NULL THEN
    INSERT INTO {schema}.jobyard_delayed
    SELECT u.q, u.r, u.s, u.g, (-u.p::bigint << 42) + u.s, 0, coalesce(u.f, 0), false
    FROM unnest(sequences, p_queue, p_group, p_priority, times, v_flags) u(s, q, g, p, r, f)
    WHERE u.s > 0 AND u.r > v_now;
  END IF;
  IF cardinality(p_tag) > 0 THEN
    INSERT INTO {schema}.jobyard_tag
    SELECT u.tag, sequences[u.i] FROM unnest(p_tag_of, p_tag) u(i, tag) WHERE sequences[u.i] > 0 ON CONFLICT DO NOTHING;
  END IF;
  INSERT INTO {schema}.jobyard_inbox (queue, xid, number, group_name, at, waiting, delayed, ord, run_at)
  SELECT c.q, pg_current_xact_id()::text::bigint, nextval('{schema}.jobyard_turn'), c.g, v_now, c.w, c.d, c.ord, c.run_at
  FROM (
    SELECT u.q, u.g, count(*) FILTER (WHERE u.r IS NULL OR u.r <= v_now) AS w, count(*) FILTER (WHERE u.r > v_now) AS d,
           min((-u.p::bigint << 42) + u.s) AS ord, min(u.r) FILTER (WHERE u.r > v_now) AS run_at
    FROM unnest(sequences, p_queue, p_group, p_priority, times) u(s, q, g, p, r) WHERE u.s > 0
    GROUP BY u.q, u.g ORDER BY min(u.s) FILTER (WHERE u.r IS NULL OR u.r <= v_now)) c;

  RETURN QUERY SELECT u.s, coalesce(u.k, u.h) FROM unnest(sequences, holders, known) WITH ORDINALITY u(s, h, k, o)
  ORDER BY u.o;
END
$$;
