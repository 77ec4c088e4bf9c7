-- When the first of a queue's finished jobs ended.
-- in: queue, bucket, cursor of the queue for that bucket. out: instant; NULL without one.
-- In PL/pgSQL, which keeps the plan: an SQL function would be planned in every call.
CREATE OR REPLACE FUNCTION {schema}.jobyard_oldest_end(p_queue text, p_bucket integer, p_from bigint) RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN (SELECT f.finished_at FROM {schema}.jobyard_done f
          WHERE f.queue = p_queue AND f.bucket = p_bucket AND f.finish >= greatest(p_from, 1)
          ORDER BY f.finish LIMIT 1);
END
$$;
