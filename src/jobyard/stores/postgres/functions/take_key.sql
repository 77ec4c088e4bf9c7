-- Take a unique key for a job.
-- in: now, queue, key, job id, until (NULL: while the job is active).
-- out: the id of its holder, if another job holds it.
-- Reads before it writes: the row of a held key must not be locked by a transaction that may stay open for long.
CREATE OR REPLACE FUNCTION {schema}.jobyard_take_key(
  p_now bigint, p_queue text, p_key text, p_id text, p_until bigint
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  holder record;
BEGIN
  LOOP
    SELECT u.job_id, u.until INTO holder FROM {schema}.jobyard_unique u WHERE u.queue = p_queue AND u.key = p_key;
    IF NOT FOUND THEN
      INSERT INTO {schema}.jobyard_unique VALUES (p_queue, p_key, p_id, p_until) ON CONFLICT DO NOTHING;
      IF FOUND THEN
        RETURN NULL;
      END IF;
    ELSIF holder.until IS NULL OR holder.until > p_now THEN
      RETURN holder.job_id;
    ELSE
      UPDATE {schema}.jobyard_unique u SET job_id = p_id, until = p_until
      WHERE u.queue = p_queue AND u.key = p_key AND u.job_id = holder.job_id AND u.until <= p_now;
      IF FOUND THEN
        RETURN NULL;
      END IF;
    END IF;
  END LOOP;
END
$$;
