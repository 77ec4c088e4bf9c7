-- Add to an append-only log.
-- in: now (NULL: the server's), log, data. out: the entry's number.
CREATE OR REPLACE FUNCTION {schema}.jobyard_append_log(p_now bigint, p_name text, p_data bytea) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
  v_number bigint;
BEGIN
  -- Until the commit: numbers must appear in their order, without gaps that a reader would pass by.
  PERFORM pg_advisory_xact_lock(hashtextextended('{schema}.jobyard_log.' || p_name, 0));
  INSERT INTO {schema}.jobyard_log (name, number, at, data)
  SELECT p_name, coalesce(max(l.number), 0) + 1, {schema}.jobyard_now(p_now), p_data
  FROM {schema}.jobyard_log l WHERE l.name = p_name
  RETURNING number INTO v_number;
  RETURN v_number;
END
$$;
