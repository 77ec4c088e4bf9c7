-- Add to an append-only log.
-- in: now (NULL: the server's), log, data. out: the entry's number.
CREATE OR REPLACE FUNCTION {schema}.jobyard_append_log(p_now bigint, p_name text, p_data bytea) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
  v_number bigint;
BEGIN
  -- The row is held until the commit: a number appears only after those before it, and no reader passes one by.
  INSERT INTO {schema}.jobyard_log_end AS l VALUES (p_name, 1)
  ON CONFLICT (name) DO UPDATE SET number = l.number + 1 RETURNING l.number INTO v_number;
  INSERT INTO {schema}.jobyard_log (name, number, at, data)
  VALUES (p_name, v_number, {schema}.jobyard_now(p_now), p_data);
  RETURN v_number;
END
$$;
