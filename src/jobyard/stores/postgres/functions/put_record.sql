-- Write a record.
-- in: now (NULL: the server's clock), collection, key, data, expected version (NULL: any; 0: it must not exist),
--     ms until it expires (NULL: never). out: its new version; NULL when the expected version does not match.
CREATE OR REPLACE FUNCTION {schema}.jobyard_put_record(
  p_now bigint, p_collection text, p_key text, p_data bytea, p_expect bigint, p_expire bigint
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  forever CONSTANT bigint := 253402300799999;
  v_now CONSTANT bigint := {schema}.jobyard_now(p_now);
  v_expires CONSTANT bigint := CASE WHEN p_expire IS NULL THEN forever ELSE least(forever, v_now + p_expire) END;
  v_version bigint;
BEGIN
  LOOP
    SELECT CASE WHEN r.expires_at <= v_now THEN 0 ELSE r.version END INTO v_version
    FROM {schema}.jobyard_record r WHERE r.collection = p_collection AND r.key = p_key FOR UPDATE;
    IF FOUND THEN
      IF p_expect <> v_version THEN
        RETURN NULL;
      END IF;
      UPDATE {schema}.jobyard_record r SET version = v_version + 1, expires_at = v_expires, data = p_data
      WHERE r.collection = p_collection AND r.key = p_key;
      RETURN v_version + 1;
    END IF;
    IF p_expect <> 0 THEN
      RETURN NULL;
    END IF;
    INSERT INTO {schema}.jobyard_record VALUES (p_collection, p_key, 1, v_expires, p_data) ON CONFLICT DO NOTHING;
    IF FOUND THEN
      RETURN 1;
    END IF;
  END LOOP;
END
$$;
