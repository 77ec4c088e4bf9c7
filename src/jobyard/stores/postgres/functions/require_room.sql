-- Back-pressure: raise JYF01 when a limited queue or one of its groups would exceed its limit.
-- in: now, strict, the limited queues, then one element per new job; holders: the holder of the job's unique key.
CREATE OR REPLACE FUNCTION {schema}.jobyard_require_room(
  p_now bigint, p_strict boolean, p_limited text[], p_queue text[], p_group text[], p_holders text[]
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  t record;
BEGIN
  IF p_strict THEN
    PERFORM {schema}.jobyard_hold(p_limited, p_now);
  END IF;
  FOR t IN
    WITH new AS (SELECT u.q, u.g FROM unnest(p_queue, p_group, p_holders) u(q, g, h) WHERE u.h IS NULL),
    spare AS (SELECT * FROM {schema}.jobyard_spare(ARRAY(SELECT n.q FROM new n), ARRAY(SELECT n.g FROM new n)))
    SELECT s.queue, s.group_name, s.most
    FROM spare s JOIN (SELECT q, count(*) AS many FROM new GROUP BY q) n ON n.q = s.queue
    WHERE s.group_name IS NULL AND n.many > s.spare
    UNION ALL
    SELECT s.queue, s.group_name, s.most
    FROM spare s JOIN (SELECT q, g, count(*) AS many FROM new GROUP BY q, g) n ON n.q = s.queue AND n.g = s.group_name
    WHERE n.many > s.spare
  LOOP
    RAISE EXCEPTION USING ERRCODE = 'JYF01', MESSAGE = 'queue full',
      DETAIL = json_build_object('queue', t.queue, 'group', t.group_name, 'limit', t.most);
  END LOOP;
END
$$;
