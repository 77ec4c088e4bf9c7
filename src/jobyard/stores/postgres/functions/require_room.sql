-- Back-pressure: raise JYF01 when the limited queues, or their groups, would hold more than they may.
-- in: now, strict, the limited queues, then one element per new job; holders: who already holds the job's unique key.
CREATE OR REPLACE FUNCTION {schema}.jobyard_require_room(
  p_now bigint, p_strict boolean, p_limited text[], p_queue text[], p_group text[], p_holders text[]
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  t record;
BEGIN
  IF p_strict THEN
    PERFORM {schema}.jobyard_hold(p_limited, p_now, true);
  END IF;
  FOR t IN
    SELECT n.q, n.many, k.max_waiting AS most, k.waiting + k.delayed
      + coalesce((SELECT sum(i.waiting + i.delayed) FROM {schema}.jobyard_inbox i WHERE i.queue = n.q), 0) AS present
    FROM (SELECT u.q, count(*) AS many FROM unnest(p_queue, p_holders) u(q, h) WHERE u.h IS NULL GROUP BY u.q) n
    JOIN {schema}.jobyard_queue k ON k.name = n.q WHERE k.max_waiting IS NOT NULL
  LOOP
    IF t.present + t.many > t.most THEN
      RAISE EXCEPTION USING ERRCODE = 'JYF01', MESSAGE = format(
        'Queue "%s" may hold %s waiting jobs (max_waiting) and has no room for %s more. '
        'Insert again when some have run, or raise max_waiting.', t.q, t.most, t.many);
    END IF;
  END LOOP;
  FOR t IN
    SELECT n.q, n.g, n.many, k.max_waiting_per_group AS most, coalesce(c.waiting + c.delayed, 0)
      + coalesce((SELECT sum(i.waiting + i.delayed) FROM {schema}.jobyard_inbox i
                  WHERE i.queue = n.q AND i.group_name = n.g), 0) AS present
    FROM (SELECT u.q, u.g, count(*) AS many FROM unnest(p_queue, p_group, p_holders) u(q, g, h)
          WHERE u.h IS NULL AND u.g <> '' GROUP BY u.q, u.g) n
    JOIN {schema}.jobyard_queue k ON k.name = n.q
    LEFT JOIN {schema}.jobyard_group c ON c.queue = n.q AND c.name = n.g
    WHERE k.max_waiting_per_group IS NOT NULL
  LOOP
    IF t.present + t.many > t.most THEN
      RAISE EXCEPTION USING ERRCODE = 'JYF01', MESSAGE = format(
        'Group "%s" of queue "%s" may hold %s waiting jobs (max_waiting_per_group) and has no room for %s more. '
        'Insert again when some have run, or raise max_waiting_per_group.', t.g, t.q, t.most, t.many);
    END IF;
  END LOOP;
END
$$;
