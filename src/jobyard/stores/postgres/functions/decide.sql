-- Decide ticks of schedules in the given order, each once, as `ports.schedule_store` says.
-- in: now (NULL: the server's clock), one element per tick: schedule, revision, instant, first instant that it
--     stands for, number of these, verdict, whether it is skipped when the unique key of its job is held; then its job as
--     for jobyard_insert, with id NULL if it has none.
-- out: per tick in order: the decision; when made also the verdict, and the id of its job or of the key's holder.
-- Lock order: schedules by name, limited queues by name, then as jobyard_insert.
CREATE OR REPLACE FUNCTION {schema}.jobyard_decide(
  p_now bigint, p_schedule text[], p_revision bigint[], p_at bigint[], p_first bigint[], p_count bigint[],
  p_verdict text[], p_skip boolean[],
  p_id text[], p_kind text[], p_queue text[], p_group text[], p_priority integer[], p_payload bytea[],
  p_max_attempts integer[], p_private bytea[], p_timeout double precision[], p_backoff bytea[], p_delay bigint[],
  p_run_at bigint[], p_unique text[], p_scope smallint[], p_period bigint[], p_tags bytea[],
  p_tag_of integer[], p_tag text[], p_parent text[] DEFAULT '{}', p_workflow boolean[] DEFAULT '{}'
) RETURNS TABLE (decision text, verdict text, job_id text) LANGUAGE plpgsql
SET lock_timeout = '2s' SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
  v_now CONSTANT bigint := {schema}.jobyard_now(p_now);
  decisions text[];
  holders text[];
  ids text[];      -- of the jobs to insert
  names text[];    -- of their queues
BEGIN
  -- A client that freezes before its commit must not keep the schedules locked.
  PERFORM set_config('idle_in_transaction_session_timeout', '5s', true);
  PERFORM FROM (SELECT DISTINCT u.s COLLATE "C" AS schedule FROM unnest(p_schedule) u(s) ORDER BY 1) n
  CROSS JOIN LATERAL (SELECT FROM {schema}.jobyard_armed a WHERE a.schedule = n.schedule OFFSET 0 FOR NO KEY UPDATE) a;
  SELECT j.decisions, j.holders INTO decisions, holders FROM {schema}.jobyard_judge(
    v_now, p_schedule, p_revision, p_at, p_skip, p_id, p_queue, p_group, p_unique) j;
  SELECT array_agg(CASE WHEN u.d = 'made' AND u.h IS NULL THEN u.i END ORDER BY u.o),
    array_agg(DISTINCT u.q) FILTER (WHERE u.d = 'made' AND u.h IS NULL AND u.i IS NOT NULL)
  INTO ids, names FROM unnest(decisions, holders, p_id, p_queue) WITH ORDINALITY u(d, h, i, q, o);

  IF names IS NOT NULL THEN
    BEGIN
      PERFORM FROM {schema}.jobyard_insert(
        v_now, names, true, ids, p_kind, p_queue, p_group, p_priority, p_payload, p_max_attempts, p_private, p_timeout,
        p_backoff, p_delay, p_run_at, p_unique, p_scope, p_period, p_tags, p_tag_of, p_tag, p_parent,
        p_workflow) i
      WHERE i.sequence = 0 AND i.holder <> '';
    EXCEPTION WHEN SQLSTATE 'JYF01' THEN
      RAISE SQLSTATE '40001' USING MESSAGE = 'a concurrent transaction filled the queue';
    END;
    IF FOUND THEN
      RAISE SQLSTATE '40001' USING MESSAGE = 'a concurrent transaction took a unique key';
    END IF;
  END IF;

  INSERT INTO {schema}.jobyard_tick (schedule, at, verdict, first, count, decided_at, job_id)
  SELECT u.s, u.at, CASE WHEN u.h IS NULL THEN u.v ELSE 'skipped' END, u.f, u.c, v_now, coalesce(u.h, u.i)
  FROM unnest(p_schedule, p_at, p_verdict, p_first, p_count, decisions, holders, p_id) u(s, at, v, f, c, d, h, i)
  WHERE u.d = 'made';
  PERFORM {schema}.jobyard_note_ticks(
    ARRAY(SELECT u.s FROM unnest(p_schedule, decisions) u(s, d) WHERE u.d = 'made'),
    ARRAY(SELECT u.at FROM unnest(p_at, decisions) u(at, d) WHERE u.d = 'made'));

  RETURN QUERY
  SELECT u.d, CASE WHEN u.d <> 'made' THEN NULL WHEN u.h IS NULL THEN u.v ELSE 'skipped' END,
    CASE WHEN u.d = 'made' THEN coalesce(u.h, u.i) END
  FROM unnest(decisions, p_verdict, holders, p_id) WITH ORDINALITY u(d, v, h, i, o) ORDER BY u.o;
END
$$;
