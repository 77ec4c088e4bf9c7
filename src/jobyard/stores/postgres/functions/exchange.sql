-- Settle what finished, then claim: one trip, one commit.
-- in: now (NULL: the server's clock), worker, token of the new leases, queues (empty: all), number of jobs, lease in ms;
--     c_*: plain completions; keep: sequences that retention must not remove yet;
--     o_*: other transitions, in order; expired_before: apply these only to leases that had expired by then;
--     impatient: refuse a job that a caller's own transaction is settling, instead of raising 55P03;
--     from: the queues of the plain completions as the client remembers them (NULL: look them up); raises JYQ01 when
--     one is missing.
-- out: one row per lease with the place of its group in line, the jobs of each group in order; its `special` is JSON: what
--     only child jobs and workflows have. Then one row with sequence NULL and the rest of the answer; its `payload` is
--     JSON: refused settlements and requested cancels, if any.
-- Planner settings: statistics taken while a table was empty must not lead to sequential scans once it is full.
CREATE OR REPLACE FUNCTION {schema}.jobyard_exchange(
  p_now bigint, p_worker text, p_token text, p_queues text[], p_wanted integer, p_lease bigint,
  c_sequence bigint[], c_token text[], c_result bytea[], p_keep bigint[],
  o_sequence bigint[], o_token text[], o_to text[], o_counted boolean[], o_died boolean[], o_delay bigint[],
  o_signal text[], o_park bigint[], o_external text[], o_result bytea[], o_reason text[], o_error bytea[],
  p_expired_before bigint, p_impatient boolean, p_from text[], o_wake text[] DEFAULT '{}'
) RETURNS TABLE (
  sequence bigint, id text, kind text, queue text, group_name text, priority integer, attempt integer,
  max_attempts integer, deaths integer, payload bytea, private_payload bytea, timeout_seconds double precision,
  backoff bytea, signal bytea, place integer, now bigint, revision bigint, next_due_at bigint, special bytea
) LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
  forever CONSTANT bigint := 253402300799999;
  v_now CONSTANT bigint := {schema}.jobyard_now(p_now);
  settling CONSTANT boolean := cardinality(c_sequence) > 0 OR cardinality(o_sequence) > 0;
  held text[];
  wanted_queues text[];
  refused bigint[] := '{}';
  f_tid tid[]; f_sequence bigint[]; f_queue text[]; f_group text[]; f_attempt integer[]; f_started bigint[];
  f_flags integer[]; f_worker text[]; f_result bytea[];
  s_queue text[] := '{}'; s_group text[] := '{}'; s_count bigint[] := '{}';
  a_ord bigint[]; a_used integer[]; a_g integer[];
  cancelled json;
  more bytea;
  v_queue text;
  t record;
  changed boolean := false;
  v_revision bigint;
  claimed integer := 0;
  v_expires bigint;
BEGIN
  wanted_queues := CASE
    WHEN settling AND cardinality(p_queues) > 0 THEN p_queues
    ELSE {schema}.jobyard_candidates(v_now, p_queues, p_wanted > 0, settling) END;
  held := wanted_queues;
  IF settling THEN
    -- All queues involved are locked at the start, in one order, so that exchanges cannot deadlock.
    held := held || p_from || ARRAY(
      SELECT DISTINCT l.queue
      FROM unnest(CASE WHEN p_from IS NULL THEN c_sequence || o_sequence ELSE o_sequence END) s(sequence)
      CROSS JOIN LATERAL (SELECT k.queue FROM {schema}.jobyard_lease k WHERE k.sequence = s.sequence OFFSET 0) l);
  END IF;
  IF cardinality(held) > 0 THEN
    held := {schema}.jobyard_hold(held, v_now);
  END IF;

  IF cardinality(c_sequence) > 0 THEN
    SELECT array_agg(x.tid), array_agg(x.sequence), array_agg(x.queue), array_agg(x.group_name), array_agg(x.attempt),
           array_agg(x.started_at), array_agg(x.flags), array_agg(x.worker), array_agg(u.result)
    INTO f_tid, f_sequence, f_queue, f_group, f_attempt, f_started, f_flags, f_worker, f_result
    FROM unnest(c_sequence, c_token, c_result) u(sequence, token, result)
    CROSS JOIN LATERAL (
      SELECT l.ctid AS tid, l.* FROM {schema}.jobyard_lease l
      WHERE l.sequence = u.sequence AND l.token = u.token OFFSET 0) x;
    IF coalesce(cardinality(f_sequence), 0) < cardinality(c_sequence) THEN
      refused := ARRAY(SELECT s FROM unnest(c_sequence) s WHERE NOT s = ANY (coalesce(f_sequence, '{}')));
    END IF;
    IF f_sequence IS NOT NULL THEN
      changed := true;
      IF f_queue[1] = ALL (f_queue) AND f_queue[1] = ANY (held) THEN
        PERFORM {schema}.jobyard_complete(v_now, f_queue[1], f_tid, f_sequence, f_attempt, f_started, f_flags, f_worker,
                                          f_result, p_keep);
      ELSE
        FOR t IN
          SELECT u.q, array_agg(u.tid) AS tids, array_agg(u.s) AS sequences, array_agg(u.a) AS attempts,
                 array_agg(u.b) AS started, array_agg(u.f) AS flags,
                 array_agg(u.w) AS workers, array_agg(u.r) AS results
          FROM unnest(f_queue, f_tid, f_sequence, f_attempt, f_started, f_flags, f_worker, f_result)
            u(q, tid, s, a, b, f, w, r)
          GROUP BY u.q ORDER BY u.q
        LOOP
          IF NOT t.q = ANY (held) THEN
            RAISE EXCEPTION USING ERRCODE = 'JYQ01', MESSAGE = 'queue not locked';
          END IF;
          PERFORM {schema}.jobyard_complete(v_now, t.q, t.tids, t.sequences, t.attempts, t.started, t.flags, t.workers,
                                            t.results, p_keep);
        END LOOP;
      END IF;
      SELECT array_agg(s.q), array_agg(s.g), array_agg(s.n) INTO s_queue, s_group, s_count
      FROM (SELECT u.q, u.g, count(*) AS n FROM unnest(f_queue, f_group) u(q, g) GROUP BY u.q, u.g) s;
    END IF;
  END IF;

  IF cardinality(o_sequence) > 0 THEN
    FOR t IN
      SELECT * FROM unnest(o_sequence, o_token, o_to, o_counted, o_died, o_delay, o_signal, o_park, o_external, o_result,
                           o_reason, o_error, o_wake) WITH ORDINALITY
        u(s, token, goes, counted, died, delay, signal, park, external, result, reason, error, wake, o)
      ORDER BY u.o
    LOOP
      -- A caller's own transaction may be settling this job: the whole queue must not wait for it.
      IF p_impatient THEN
        PERFORM FROM {schema}.jobyard_lease l WHERE l.sequence = t.s AND l.token = t.token FOR UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
          refused := refused || -t.o;
          CONTINUE;
        END IF;
      ELSE
        PERFORM FROM {schema}.jobyard_lease l WHERE l.sequence = t.s AND l.token = t.token FOR UPDATE NOWAIT;
      END IF;
      IF {schema}.jobyard_apply(v_now, t.s, t.token, t.goes, t.counted, t.died, t.delay, t.signal, t.park, t.external,
                                t.result, t.reason, t.error, p_expired_before, t.wake) THEN
        changed := true;
      ELSE
        refused := refused || -t.o;
      END IF;
    END LOOP;
    FOREACH v_queue IN ARRAY held LOOP
      PERFORM {schema}.jobyard_fold(v_queue, v_now, 1000 + cardinality(o_sequence));
    END LOOP;
  END IF;

  IF changed THEN
    FOREACH v_queue IN ARRAY held LOOP
      -- A little more than was added, so that a queue at its retention limit stays there without a separate prune.
      PERFORM {schema}.jobyard_prune(
        v_queue, v_now, 2 * (cardinality(c_sequence) + cardinality(o_sequence)) + 64, 64, p_keep);
    END LOOP;
  END IF;

  IF cardinality(held) > 0 AND (p_wanted > 0 OR cardinality(s_queue) > 0) THEN
    IF cardinality(p_queues) = 0 THEN
      wanted_queues := held;
    ELSIF NOT wanted_queues <@ held THEN
      -- A queue that was created while this waited for locks is not locked.
      wanted_queues := ARRAY(SELECT n FROM unnest(wanted_queues) n WHERE n = ANY (held));
    END IF;
    -- After the wait for locks: a lease must not be granted that has expired.
    v_expires := least(forever, {schema}.jobyard_now(p_now) + p_lease);
    IF cardinality(wanted_queues) = 1 AND wanted_queues[1] = ALL (s_queue) THEN
      SELECT c.* INTO a_ord, a_used, a_g FROM {schema}.jobyard_claim_one(
        v_now, p_worker, p_token, v_expires, wanted_queues[1], p_wanted, s_group, s_count) c;
    ELSE
      SELECT c.* INTO a_ord, a_used, a_g FROM {schema}.jobyard_claim(
        v_now, p_worker, p_token, v_expires, wanted_queues, p_wanted, s_queue, s_group, s_count) c;
    END IF;
    claimed := coalesce(cardinality(a_ord), 0);
    IF claimed > 0 THEN
      -- The lateral join keeps the order of the arrays.
      RETURN QUERY
      SELECT j.sequence, j.id, j.kind, j.queue, j.group_name, j.priority, u.used + 1, j.max_attempts, j.deaths, j.payload,
             j.private_payload, j.timeout_seconds, j.backoff, j.signal, u.g, NULL::bigint, NULL::bigint, NULL::bigint,
             CASE WHEN j.flags & 48 <> 0 THEN convert_to(json_build_object(
               'is_workflow', j.flags & 32 <> 0, 'parent', j.parent::json, 'cancel_requested', j.cancel)::text, 'UTF8') END
      FROM unnest(a_ord, a_used, a_g) u(ord, used, g)
      CROSS JOIN LATERAL (
        SELECT * FROM {schema}.jobyard_job k WHERE k.sequence = u.ord & 4398046511103 OFFSET 0) j;
    END IF;
  END IF;

  IF changed OR claimed > 0 THEN
    v_revision := nextval('{schema}.jobyard_revision');
  ELSE
    SELECT r.last_value INTO v_revision FROM {schema}.jobyard_revision r;
  END IF;
  IF EXISTS (SELECT FROM {schema}.jobyard_lease l WHERE l.worker = p_worker AND l.cancel IS NOT NULL) THEN
    SELECT json_agg(json_build_array(j.id, l.sequence, l.token, l.cancel) ORDER BY l.sequence) INTO cancelled
    FROM {schema}.jobyard_lease l CROSS JOIN LATERAL (
      SELECT k.id FROM {schema}.jobyard_job k WHERE k.sequence = l.sequence OFFSET 0) j
    WHERE l.worker = p_worker AND l.cancel IS NOT NULL;
  END IF;
  IF cancelled IS NOT NULL OR cardinality(refused) > 0 THEN
    more := convert_to(json_build_object('refused', refused, 'cancelled', coalesce(cancelled, '[]'))::text, 'UTF8');
  END IF;
  RETURN QUERY SELECT NULL::bigint, NULL::text, NULL::text, NULL::text, NULL::text, NULL::integer, NULL::integer,
    NULL::integer, NULL::integer, more, NULL::bytea, NULL::double precision, NULL::bytea, NULL::bytea, NULL::integer,
    v_now, v_revision, (SELECT d.run_at FROM {schema}.jobyard_delayed d
                        WHERE d.run_at > v_now AND d.run_at < forever ORDER BY d.run_at LIMIT 1), NULL::bytea;
END
$$;
