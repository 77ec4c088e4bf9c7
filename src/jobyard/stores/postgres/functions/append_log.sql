-- Append an entry to a log.
-- in: now (NULL: the server's clock), log, data. out: number of the entry.
CREATE OR REPLACE FUNCTION {schema}.jobyard_append_log(p_now bigint, p_name text, p_data bytea) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
  v_number bigint;
BEGIN
  -- The row stays locked until the commit: numbers become visible in order, so that a reader misses none.
  INSERT INTO {schema}.jobyard_log_end AS l VALUES (p_name, 1)
  ON CONFLICT (name) DO UPDATE SET number = l.number + 1 RETURNING l.number INTO v_number;
  INSERT INTO {schema}.jobyard_log (name, number, at, data)
  VALUES (p_name, v_number, {schema}.jobyard_now(p_now), p_data);
  RETURN v_number;
END
$$;
