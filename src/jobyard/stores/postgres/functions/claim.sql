-- Claim under the admission rule from queues whose rows the caller holds.
-- in: now, worker, token, end of the leases, queues, how many. out: what the worker needs of each job, in rule order.
CREATE OR REPLACE FUNCTION {schema}.jobyard_claim(
  p_now bigint, p_worker text, p_token text, p_expires bigint, p_queues text[], p_wanted integer
) RETURNS TABLE (
  sequence bigint, id text, kind text, queue text, group_name text, priority integer, attempt integer,
  max_attempts integer, deaths integer, payload bytea, private_payload bytea, timeout_seconds double precision,
  backoff bytea, signal bytea
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  unlimited CONSTANT bigint := 9007199254740992;
  q record;
  room bigint;
  names text[]; caps bigint[]; heads bigint[]; turns bigint[];
  -- Per queue with something to give, in the order of their turns.
  q_name text[] := '{}'; q_room bigint[] := '{}'; q_line_last bigint[] := '{}'; q_per_group bigint[] := '{}';
  q_given bigint[];
  -- Per group in line, queue after queue.
  g_q integer[] := '{}'; g_name text[] := '{}'; g_cap bigint[] := '{}'; g_head bigint[] := '{}'; g_turn bigint[] := '{}';
  g_given bigint[] := '{}';
  a_g integer[]; a_tid tid[]; a_ord bigint[];
  many integer := 0;
BEGIN
  FOR q IN
    SELECT k.name, k.max_running, k.max_per_group, k.running, k.line_from, k.line_last FROM {schema}.jobyard_queue k
    WHERE k.name = ANY (p_queues) AND k.waiting > 0 AND NOT k.paused
      AND (k.max_running IS NULL OR k.running < k.max_running)
    ORDER BY k.turn_at, k.turn
  LOOP
    room := least(p_wanted, coalesce(q.max_running, unlimited) - q.running);
    SELECT array_agg(s.name), array_agg(s.cap), array_agg(s.head), array_agg(s.turn) INTO names, caps, heads, turns
    FROM (SELECT g.name, g.head, g.turn, least(room, g.waiting,
                   coalesce(g.own_limit, CASE WHEN g.name <> '' THEN q.max_per_group END, unlimited) - g.running) AS cap
          FROM {schema}.jobyard_group g
          WHERE g.queue = q.name AND g.open AND g.turn >= q.line_from ORDER BY g.turn LIMIT room) s;
    CONTINUE WHEN names IS NULL;
    many := many + 1;
    q_name := q_name || q.name;
    q_line_last := q_line_last || q.line_last;
    q_per_group := q_per_group || coalesce(q.max_per_group, unlimited);
    q_room := q_room || (SELECT least(room, sum(c))::bigint FROM unnest(caps) c);
    g_q := g_q || array_fill(many, ARRAY[cardinality(names)]);
    g_name := g_name || names; g_cap := g_cap || caps; g_head := g_head || heads; g_turn := g_turn || turns;
    -- Each queue with a line gets a turn before any gets a second: those after the first `wanted` get none.
    EXIT WHEN many = p_wanted;
  END LOOP;
  IF many = 0 THEN
    RETURN;
  END IF;
  IF many = 1 THEN
    g_given := {schema}.jobyard_share(g_cap, q_room[1]);
  ELSE
    q_given := {schema}.jobyard_share(q_room, p_wanted);
    FOR i IN 1 .. many LOOP
      caps := ARRAY(SELECT u.c FROM unnest(g_q, g_cap) WITH ORDINALITY u(q, c, o) WHERE u.q = i ORDER BY u.o);
      g_given := g_given || {schema}.jobyard_share(caps, q_given[i]);
    END LOOP;
  END IF;

  SELECT array_agg(u.o), array_agg(r.tid), array_agg(r.ord) INTO a_g, a_tid, a_ord
  FROM unnest(g_q, g_name, g_given, g_head) WITH ORDINALITY u(q, name, n, head, o)
  CROSS JOIN LATERAL (
    SELECT k.ctid AS tid, k.ord FROM {schema}.jobyard_ready k
    WHERE k.queue = q_name[u.q] AND k.group_name = u.name AND k.ord >= u.head
    ORDER BY k.ord LIMIT u.n) r;
  IF a_tid IS NULL THEN
    RETURN;
  END IF;
  DELETE FROM {schema}.jobyard_ready WHERE ctid = ANY (a_tid);

  -- A group goes to the end after each job it is given: who got fewer got the last one earlier.
  UPDATE {schema}.jobyard_group g SET
    waiting = g.waiting - t.n, running = g.running + t.n, head = t.last + 1, turn = t.turn,
    open = g.waiting - t.n > 0 AND g.running + t.n <
      coalesce(g.own_limit, CASE WHEN g.name <> '' THEN t.per_group END, unlimited)
  FROM (
    SELECT s.n, s.last, x.tid, q_per_group[g_q[s.g]] AS per_group,
           q_line_last[g_q[s.g]] + row_number() OVER (PARTITION BY g_q[s.g] ORDER BY s.n, s.g) AS turn
    FROM (SELECT u.g, count(*) AS n, max(u.ord) AS last FROM unnest(a_g, a_ord) u(g, ord) GROUP BY u.g) s
    CROSS JOIN LATERAL (
      SELECT k.ctid AS tid FROM {schema}.jobyard_group k
      WHERE k.queue = q_name[g_q[s.g]] AND k.name = g_name[s.g] OFFSET 0) x) t
  WHERE g.ctid = t.tid;

  FOR q IN
    SELECT g_q[u.g] AS i, count(*) AS n, max(g_turn[u.g]) AS last, count(DISTINCT u.g) AS groups
    FROM unnest(a_g) u(g) GROUP BY 1 ORDER BY 2, 1
  LOOP
    UPDATE {schema}.jobyard_queue k SET
      waiting = k.waiting - q.n, running = k.running + q.n, turn_at = p_now,
      turn = nextval('{schema}.jobyard_turn'),
      line_last = k.line_last + q.groups, line_from = q.last + 1
    WHERE k.name = q_name[q.i];
  END LOOP;

  RETURN QUERY
  WITH held AS MATERIALIZED (
    SELECT u.g, u.rank, j.*
    FROM (SELECT v.g, v.ord, row_number() OVER (PARTITION BY v.g ORDER BY v.ord) AS rank
          FROM unnest(a_g, a_ord) v(g, ord)) u
    CROSS JOIN LATERAL (
      SELECT k.sequence, k.id, k.kind, k.queue, k.group_name, k.priority, k.used, k.max_attempts, k.deaths, k.payload,
             k.private_payload, k.timeout_seconds, k.backoff, k.signal, k.flags
      FROM {schema}.jobyard_job k WHERE k.sequence = u.ord & 4398046511103 OFFSET 0) j),
  leases AS (
    INSERT INTO {schema}.jobyard_lease
      (sequence, expires_at, started_at, attempt, flags, token, worker, queue, group_name)
    SELECT h.sequence, p_expires, p_now, h.used + 1, h.flags, p_token, p_worker, h.queue, h.group_name FROM held h)
  SELECT h.sequence, h.id, h.kind, h.queue, h.group_name, h.priority, h.used + 1, h.max_attempts, h.deaths, h.payload,
         h.private_payload, h.timeout_seconds, h.backoff, h.signal
  FROM held h
  ORDER BY CASE WHEN many > 1 THEN row_number() OVER (PARTITION BY g_q[h.g] ORDER BY h.rank, h.g) ELSE h.rank END, h.g;
END
$$;
