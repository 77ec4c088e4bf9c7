-- Remove a queue that has no jobs, with its groups and unique keys.
-- in: name. out: whether it existed; NULL when it has jobs.
CREATE OR REPLACE FUNCTION {schema}.jobyard_remove_queue(p_queue text) RETURNS boolean LANGUAGE plpgsql
-- Everything waits behind this lock: a caller's open transaction must not make it wait long. The client tries again.
SET lock_timeout = '100ms'
AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM {schema}.jobyard_queue k WHERE k.name = p_queue) THEN
    RETURN false;
  END IF;
  -- An insert reads the row without a lock, to be fast, and must find it when it commits.
  LOCK TABLE {schema}.jobyard_queue IN ACCESS EXCLUSIVE MODE;
  IF EXISTS (SELECT FROM {schema}.jobyard_ready r WHERE r.queue = p_queue)
    OR EXISTS (SELECT FROM {schema}.jobyard_delayed d WHERE d.queue = p_queue)
    OR EXISTS (SELECT FROM {schema}.jobyard_lease l WHERE l.queue = p_queue)
    OR EXISTS (SELECT FROM {schema}.jobyard_done d WHERE d.queue = p_queue) THEN
    RETURN NULL;
  END IF;
  DELETE FROM {schema}.jobyard_inbox i WHERE i.queue = p_queue;
  DELETE FROM {schema}.jobyard_group g WHERE g.queue = p_queue;
  DELETE FROM {schema}.jobyard_unique u WHERE u.queue = p_queue;
  DELETE FROM {schema}.jobyard_queue k WHERE k.name = p_queue;
  PERFORM nextval('{schema}.jobyard_revision');
  RETURN true;
END
$$;
