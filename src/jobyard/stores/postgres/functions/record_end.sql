-- Record the end of a job for others: of a child, and of a workflow that has begun and does not complete. The first end
-- is kept. For jobs with bit 16 or 32 of the flags, before they are deleted.
-- in: sequence, final state (NULL: deleted), result, reason.
CREATE OR REPLACE FUNCTION {schema}.jobyard_record_end(p_sequence bigint, p_state text, p_result bytea, p_reason text)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO {schema}.jobyard_ended (number, job_id, state, is_workflow, parent, result, reason)
  SELECT nextval('{schema}.jobyard_entry'), j.id, p_state, j.flags & 32 <> 0, j.parent,
         CASE WHEN p_state = 'COMPLETED' THEN p_result END, p_reason
  FROM {schema}.jobyard_job j
  WHERE j.sequence = p_sequence
    AND (j.flags & 16 <> 0 OR (p_state <> 'COMPLETED' AND j.flags & 32 <> 0 AND {schema}.jobyard_has_begun(p_sequence)))
  ON CONFLICT (job_id) DO NOTHING;
END
$$;
