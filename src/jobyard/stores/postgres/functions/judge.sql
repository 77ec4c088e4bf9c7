-- Decide each tick of a call, in order, before anything is written; the caller has locked the rows of the schedules.
-- in: now, one element per tick: schedule, revision, instant, whether it is skipped when its key is held; of its job: id
--     (NULL: it has none), queue, group, unique key.
-- out: the decisions; the holder of the key, for ticks that are skipped.
-- Locks limited queues before the first job for one of them.
CREATE OR REPLACE FUNCTION {schema}.jobyard_judge(
  p_now bigint, p_schedule text[], p_revision bigint[], p_at bigint[], p_skip boolean[],
  p_id text[], p_queue text[], p_group text[], p_unique text[],
  OUT decisions text[], OUT holders text[]
) LANGUAGE plpgsql AS $$
DECLARE
  none CONSTANT text[] := array_fill(NULL::text, ARRAY[cardinality(p_at)]);
  limited text[];
  has_read_spare boolean := false;
  until bigint[] := none::bigint[];  -- by schedule
  stopped text[] := none;            -- by schedule: the decision that also stops its later ticks
  takers text[] := none;             -- by key: the job of this call that takes it
  queue_spare bigint[];                -- by queue; NULL: unlimited
  group_spare bigint[];                -- by queue and group
  holder text;
  t record;
BEGIN
  decisions := none;
  holders := none;
  limited := ARRAY(
    SELECT k.name FROM (SELECT DISTINCT u.q FROM unnest(p_queue, p_id) u(q, i) WHERE u.i IS NOT NULL) n
    CROSS JOIN LATERAL (SELECT q.name FROM {schema}.jobyard_queue q WHERE q.name = n.q
                        AND (q.max_waiting IS NOT NULL OR q.max_waiting_per_group IS NOT NULL) OFFSET 0) k);
  IF cardinality(limited) = 0 AND NOT EXISTS (
      SELECT FROM unnest(p_schedule) u(s) GROUP BY u.s COLLATE "C" HAVING count(*) > 1) AND NOT EXISTS (
      SELECT FROM unnest(p_queue, p_unique) u(q, key) WHERE u.key IS NOT NULL
      GROUP BY u.q COLLATE "C", u.key COLLATE "C" HAVING count(*) > 1) THEN
    -- The usual case: no tick depends on another of the call.
    SELECT array_agg(CASE
        WHEN a.revision IS DISTINCT FROM u.revision THEN 'stale'
        WHEN u.at <= a.decided_until THEN 'known'
        WHEN u.id IS NOT NULL AND h.job_id IS NOT NULL AND NOT u.skip THEN 'held'
        ELSE 'made' END ORDER BY u.o),
      array_agg(CASE WHEN a.revision = u.revision AND u.at > a.decided_until AND u.id IS NOT NULL AND u.skip
        THEN h.job_id END ORDER BY u.o)
    INTO decisions, holders
    FROM unnest(p_schedule, p_revision, p_at, p_skip, p_id, p_queue, p_unique) WITH ORDINALITY
      u(schedule, revision, at, skip, id, q, key, o)
    LEFT JOIN LATERAL (SELECT x.revision, x.decided_until FROM {schema}.jobyard_armed x
                       WHERE x.schedule = u.schedule OFFSET 0) a ON true
    LEFT JOIN LATERAL (SELECT x.job_id FROM {schema}.jobyard_unique x WHERE x.queue = u.q AND x.key = u.key
                       AND (x.until IS NULL OR x.until > p_now) OFFSET 0) h ON true;
    RETURN;
  END IF;
  FOR t IN
    SELECT u.o, u.at, u.skip, u.id, u.key, a.revision = u.revision AS fits, a.decided_until, h.job_id AS holder,
      dense_rank() OVER (ORDER BY u.schedule COLLATE "C") AS by_schedule,
      dense_rank() OVER (ORDER BY u.q COLLATE "C", u.key COLLATE "C") AS by_key,
      dense_rank() OVER (ORDER BY u.q COLLATE "C") AS by_queue,
      dense_rank() OVER (ORDER BY u.q COLLATE "C", u.g COLLATE "C") AS by_group
    FROM unnest(p_schedule, p_revision, p_at, p_skip, p_id, p_queue, p_group, p_unique) WITH ORDINALITY
      u(schedule, revision, at, skip, id, q, g, key, o)
    LEFT JOIN LATERAL (SELECT x.revision, x.decided_until FROM {schema}.jobyard_armed x
                       WHERE x.schedule = u.schedule OFFSET 0) a ON true
    LEFT JOIN LATERAL (SELECT x.job_id FROM {schema}.jobyard_unique x WHERE x.queue = u.q AND x.key = u.key
                       AND (x.until IS NULL OR x.until > p_now) OFFSET 0) h ON true
    ORDER BY u.o
  LOOP
    IF t.fits IS NOT TRUE THEN
      decisions[t.o] := 'stale';
      CONTINUE;
    ELSIF t.at <= coalesce(until[t.by_schedule], t.decided_until) THEN
      decisions[t.o] := 'known';
      CONTINUE;
    ELSIF stopped[t.by_schedule] IS NOT NULL THEN
      -- A later tick that is made would leave the stopped one behind for ever.
      decisions[t.o] := stopped[t.by_schedule];
      CONTINUE;
    END IF;
    decisions[t.o] := 'made';
    IF t.id IS NOT NULL THEN
      holder := coalesce(t.holder, CASE WHEN t.key IS NOT NULL THEN takers[t.by_key] END);
      IF holder IS NULL AND cardinality(limited) > 0 THEN
        IF NOT has_read_spare THEN
          has_read_spare := true;
          PERFORM {schema}.jobyard_hold(limited, p_now);
          WITH spare AS MATERIALIZED (SELECT * FROM {schema}.jobyard_spare(p_queue, p_group))
          SELECT
            ARRAY(SELECT s.spare FROM (SELECT DISTINCT u.q COLLATE "C" AS q FROM unnest(p_queue) u(q)) n
                  LEFT JOIN spare s ON s.queue = n.q AND s.group_name IS NULL ORDER BY n.q),
            ARRAY(SELECT s.spare FROM (SELECT DISTINCT u.q COLLATE "C" AS q, u.g COLLATE "C" AS g
                                       FROM unnest(p_queue, p_group) u(q, g)) n
                  LEFT JOIN spare s ON s.queue = n.q AND s.group_name = n.g ORDER BY n.q, n.g)
          INTO queue_spare, group_spare;
        END IF;
        IF queue_spare[t.by_queue] <= 0 OR group_spare[t.by_group] <= 0 THEN
          decisions[t.o] := 'full';
        ELSE
          queue_spare[t.by_queue] := queue_spare[t.by_queue] - 1;
          group_spare[t.by_group] := group_spare[t.by_group] - 1;
        END IF;
      ELSIF holder IS NOT NULL THEN
        IF t.skip THEN
          holders[t.o] := holder;
        ELSE
          decisions[t.o] := 'held';
        END IF;
      END IF;
    END IF;
    IF decisions[t.o] <> 'made' THEN
      stopped[t.by_schedule] := decisions[t.o];
      CONTINUE;
    END IF;
    until[t.by_schedule] := t.at;
    IF t.key IS NOT NULL AND holders[t.o] IS NULL THEN
      takers[t.by_key] := t.id;
    END IF;
  END LOOP;
END
$$;
