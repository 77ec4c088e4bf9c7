-- The store's clock in milliseconds; a test passes its own.
CREATE OR REPLACE FUNCTION {schema}.jobyard_now(p_now bigint) RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT coalesce(p_now, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
$$;
