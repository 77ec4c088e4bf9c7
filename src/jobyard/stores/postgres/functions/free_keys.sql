-- Free the unique keys of jobs that have ended or are deleted, for the scope in which a key is held while active.
-- in: sequences of jobs.
CREATE OR REPLACE FUNCTION {schema}.jobyard_free_keys(p_sequences bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM {schema}.jobyard_unique WHERE ctid = ANY (ARRAY(
    SELECT x.tid FROM unnest(p_sequences) s(sequence)
    CROSS JOIN LATERAL (SELECT j.queue, j.unique_key, j.id FROM {schema}.jobyard_job j
                        WHERE j.sequence = s.sequence OFFSET 0) j
    CROSS JOIN LATERAL (SELECT u.ctid AS tid FROM {schema}.jobyard_unique u
                        WHERE u.queue = j.queue AND u.key = j.unique_key AND u.job_id = j.id AND u.until IS NULL
                        OFFSET 0) x));
END
$$;
