-- Complete many jobs of one queue, whose row the caller has locked: delete their leases, insert their rows in done.
-- Their slots are freed by jobyard_claim_one, which writes each group once.
-- in: now, queue, and per job: ctid of its lease, sequence, attempt, start, flags, worker, result;
--     keep: sequences that retention must not remove yet.
CREATE OR REPLACE FUNCTION {schema}.jobyard_complete(
  p_now bigint, p_queue text, p_tids tid[], p_sequences bigint[], p_attempts integer[],
  p_started bigint[], p_flags integer[], p_workers text[], p_results bytea[], p_keep bigint[]
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  q record;
  many CONSTANT integer := cardinality(p_sequences);
  dropped integer := 0;
  v_flags integer := 0;  -- the bits that some of the jobs have
BEGIN
  SELECT k.keep_completed, k.keep_completed_seconds, k.finish_last INTO q
  FROM {schema}.jobyard_queue k WHERE k.name = p_queue;
  DELETE FROM {schema}.jobyard_lease WHERE ctid = ANY (p_tids);
  IF 0 <> ANY (p_flags) THEN
    SELECT bit_or(f) INTO v_flags FROM unnest(p_flags) f;
  END IF;
  IF v_flags & 1 <> 0 THEN
    PERFORM {schema}.jobyard_free_keys(ARRAY(
      SELECT u.s FROM unnest(p_sequences, p_flags) u(s, f) WHERE u.f & 1 <> 0));
  END IF;
  IF v_flags & 16 <> 0 THEN
    -- As jobyard_record_end, for all children at once.
    INSERT INTO {schema}.jobyard_ended (number, job_id, state, is_workflow, parent, result)
    SELECT nextval('{schema}.jobyard_entry'), c.id, 'COMPLETED', c.flags & 32 <> 0, c.parent, coalesce(c.r, 'null'::bytea)
    FROM (SELECT j.*, u.r FROM unnest(p_sequences, p_flags, p_results) WITH ORDINALITY u(s, f, r, o)
          CROSS JOIN LATERAL (SELECT k.id, k.flags, k.parent FROM {schema}.jobyard_job k
                              WHERE k.sequence = u.s OFFSET 0) j
          WHERE u.f & 16 <> 0 ORDER BY u.o OFFSET 0) c
    ON CONFLICT (job_id) DO NOTHING;
  END IF;
  -- Rows that retention would remove at once are not written.
  IF q.keep_completed_seconds = 0 AND many > q.keep_completed AND cardinality(p_keep) = 0
    AND NOT EXISTS (SELECT FROM {schema}.jobyard_awaited a WHERE a.sequence = ANY (p_sequences) AND a.until > p_now) THEN
    dropped := many - q.keep_completed;
    PERFORM {schema}.jobyard_drop(p_sequences[:dropped]);
  END IF;
  INSERT INTO {schema}.jobyard_done
    (sequence, finish, started_at, finished_at, attempt, bucket, queue, state, worker, result)
  SELECT u.s, q.finish_last + u.o, u.b, p_now, u.a, 0, p_queue, 'COMPLETED', u.w, coalesce(u.r, 'null'::bytea)
  FROM unnest(p_sequences[dropped + 1:], p_started[dropped + 1:], p_attempts[dropped + 1:], p_workers[dropped + 1:],
              p_results[dropped + 1:]) WITH ORDINALITY u(s, b, a, w, r, o);
  IF v_flags & 2 <> 0 THEN
    UPDATE {schema}.jobyard_job j SET private_payload = NULL
    FROM unnest(p_sequences[dropped + 1:], p_flags[dropped + 1:]) u(s, f)
    WHERE u.f & 2 <> 0 AND j.sequence = u.s;
  END IF;
  UPDATE {schema}.jobyard_queue k SET completed = k.completed + many - dropped,
    finish_last = k.finish_last + many - dropped
  WHERE k.name = p_queue;
END
$$;
