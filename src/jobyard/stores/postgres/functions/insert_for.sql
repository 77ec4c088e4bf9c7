-- Insert one plain job and serve a waiting claim of the same process in the same commit.
-- in: as jobyard_insert_one; then worker, token, queues (empty: all), number of jobs, lease in ms.
-- out: a row with the job's sequence and, as its place, 1 when the commit does not wait for the disk (the client then
--     runs the statement `flush`); then as jobyard_exchange; no row when jobyard_insert_one returned 0.
-- When no other job waits, as is usual while a worker is idle, the job goes straight to the worker: of what an insert and
-- an exchange would write, only the lease is needed. The worker need not wait for the disk; the caller of insert does.
CREATE OR REPLACE FUNCTION {schema}.jobyard_insert_for(
  p_now bigint, p_id text, p_kind text, p_queue text, p_group text, p_priority integer, p_payload bytea,
  p_max_attempts integer, p_timeout double precision, p_backoff bytea,
  p_worker text, p_token text, p_queues text[], p_wanted integer, p_lease bigint
) RETURNS TABLE (
  sequence bigint, id text, kind text, queue text, group_name text, priority integer, attempt integer,
  max_attempts integer, deaths integer, payload bytea, private_payload bytea, timeout_seconds double precision,
  backoff bytea, signal bytea, place integer, now bigint, revision bigint, next_due_at bigint, special bytea
) LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
  forever CONSTANT bigint := 253402300799999;
  v_now CONSTANT bigint := coalesce(p_now, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_queues text[] := p_queues;
  v_sequence bigint;
  straight boolean := false;
  ignored text;
  q record;
BEGIN
  IF p_wanted > 0 AND (p_queues = ARRAY[p_queue] OR (
      (cardinality(p_queues) = 0 OR p_queue = ANY (p_queues))
      AND cardinality({schema}.jobyard_candidates(v_now, p_queues, true, false)) = 0)) THEN
    ignored := set_config('idle_in_transaction_session_timeout', '5s', true);  -- see jobyard_hold
    PERFORM FROM {schema}.jobyard_queue k WHERE k.name = p_queue FOR NO KEY UPDATE;
    -- An open transaction may have inserted this id: the queue must not stay locked until that one ends.
    ignored := set_config('lock_timeout', '50ms', true);
    -- Only this queue: queues are locked in the order of their names, and this one is locked already.
    v_queues := ARRAY[p_queue];
    -- A separate statement, so that it sees what was committed while the first waited for the lock.
    SELECT k.line_last, CASE WHEN p_group <> '' THEN k.max_per_group END AS most,
      k.max_waiting IS NULL AND k.max_waiting_per_group IS NULL AND k.waiting = 0 AND NOT k.paused
      AND (k.max_running IS NULL OR k.running < k.max_running)
      AND NOT EXISTS (SELECT FROM {schema}.jobyard_inbox i WHERE i.queue = p_queue AND i.xid >= k.inbox_from)
      AND NOT EXISTS (SELECT FROM {schema}.jobyard_delayed d
                      WHERE d.queue = p_queue AND (d.run_at, d.sequence) > (k.delayed_from, k.delayed_after)
                        AND d.run_at <= v_now)
      AND NOT EXISTS (SELECT FROM {schema}.jobyard_job j WHERE j.id = p_id) AS quiet
    INTO q FROM {schema}.jobyard_queue k WHERE k.name = p_queue;
    IF q.quiet AND (q.most IS NULL OR q.most > 0) THEN
      -- A group that is paused or has no room stays unchanged.
      INSERT INTO {schema}.jobyard_group AS g (queue, name, turn, running, head)
      VALUES (p_queue, p_group, q.line_last + 1, 1, 9223372036854775807)
      ON CONFLICT (queue, name) DO UPDATE SET turn = excluded.turn, running = g.running + 1
      WHERE NOT g.paused AND g.running < coalesce(g.own_limit, q.most, 9007199254740992);
      straight := FOUND;
    END IF;
  END IF;
  IF NOT straight THEN
    sequence := {schema}.jobyard_insert_one(
      p_now, p_id, p_kind, p_queue, p_group, p_priority, p_payload, p_max_attempts, p_timeout, p_backoff);
    IF sequence > 0 THEN
      RETURN NEXT;
      RETURN QUERY SELECT * FROM {schema}.jobyard_exchange(
        p_now, p_worker, p_token, v_queues, p_wanted, p_lease,
        c_sequence => '{}', c_token => '{}', c_result => '{}', p_keep => '{}',
        o_sequence => '{}', o_token => '{}', o_to => '{}', o_counted => '{}', o_died => '{}', o_delay => '{}',
        o_signal => '{}', o_park => '{}', o_external => '{}', o_result => '{}', o_reason => '{}', o_error => '{}',
        p_expired_before => NULL, p_impatient => false, p_from => NULL);
    END IF;
    RETURN;
  END IF;
  ignored := set_config('synchronous_commit', 'off', true);
  v_sequence := nextval('{schema}.jobyard_sequence');
  -- One statement for three tables: starting a statement costs as much as its work here.
  WITH job AS (
    INSERT INTO {schema}.jobyard_job
      (sequence, id, kind, queue, group_name, priority, max_attempts, flags, run_at, created_at, timeout_seconds, payload,
       backoff)
    VALUES (v_sequence, p_id, p_kind, p_queue, p_group, p_priority, p_max_attempts, 0, v_now, v_now, p_timeout, p_payload,
            p_backoff)),
  lease AS (
    INSERT INTO {schema}.jobyard_lease
      (sequence, expires_at, started_at, attempt, flags, token, worker, queue, group_name)
    VALUES (v_sequence, least(forever, {schema}.jobyard_now(p_now) + p_lease), v_now, 1, 0, p_token, p_worker, p_queue, p_group))
  UPDATE {schema}.jobyard_queue k SET
    running = k.running + 1, turn_at = v_now, turn = nextval('{schema}.jobyard_turn'),
    line_last = k.line_last + 1, line_from = k.line_last + 1
  WHERE k.name = p_queue;
  sequence := v_sequence;
  place := 1;
  RETURN NEXT;
  RETURN QUERY SELECT v_sequence, p_id, p_kind, p_queue, p_group, p_priority, 1, p_max_attempts, 0, p_payload, NULL::bytea,
    p_timeout, p_backoff, NULL::bytea, 1, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bytea;
  RETURN QUERY SELECT NULL::bigint, NULL::text, NULL::text, NULL::text, NULL::text, NULL::integer, NULL::integer,
    NULL::integer, NULL::integer, NULL::bytea, NULL::bytea, NULL::double precision, NULL::bytea, NULL::bytea, NULL::integer,
    v_now, nextval('{schema}.jobyard_revision'), (
      SELECT d.run_at FROM {schema}.jobyard_delayed d WHERE d.run_at > v_now AND d.run_at < forever ORDER BY d.run_at LIMIT 1),
    NULL::bytea;
END
$$;
