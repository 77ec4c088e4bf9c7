-- Give slots back and hand slots out, in queues whose rows the caller holds: every group that is touched is read once and
-- written once.
-- in: now, worker, token, end of the leases; queues to claim from, how many; per group that lost running jobs: queue, name,
--     how many. out: per job that was claimed: sequence, attempt, the place in line of its group; group after group.
--     (Windows over many small groups are dear here; who asked puts them in the order of single claims.)
CREATE OR REPLACE FUNCTION {schema}.jobyard_claim(
  p_now bigint, p_worker text, p_token text, p_expires bigint, p_queues text[], p_wanted integer,
  f_queue text[], f_group text[], f_count bigint[],
  OUT r_sequence bigint[], OUT r_attempt integer[], OUT r_place integer[]
) LANGUAGE plpgsql AS $$
DECLARE
  unlimited CONSTANT bigint := 9007199254740992;
  q record;
  room bigint;
  freed bigint;
  total bigint;
  reach bigint;
  cut boolean;
  -- Of the queue at hand.
  t_name text[]; t_tid tid[]; t_turn bigint[]; t_head bigint[]; t_gap bigint[]; t_waiting bigint[]; t_running bigint[]; t_limit bigint[];
  t_paused boolean[]; t_freed bigint[]; t_cap bigint[]; t_last bigint;
  -- Per queue, in the order of their turns.
  q_name text[] := '{}'; q_room bigint[] := '{}'; q_freed bigint[] := '{}'; q_line_last bigint[] := '{}';
  q_beyond bigint[] := '{}'; q_given bigint[];
  -- Per group that is touched or stands near the front, queue after queue, in line order.
  g_q integer[] := '{}'; g_name text[] := '{}'; g_tid tid[] := '{}'; g_turn bigint[] := '{}'; g_head bigint[] := '{}';
  g_gap bigint[] := '{}';
  g_waiting bigint[] := '{}'; g_running bigint[] := '{}'; g_limit bigint[] := '{}'; g_paused boolean[] := '{}';
  g_freed bigint[] := '{}'; g_cap bigint[] := '{}'; g_given bigint[] := '{}';
  a_g bigint[]; a_tid tid[]; a_ord bigint[]; a_used integer[]; a_flags integer[];
  many integer := 0;
  far bigint;
BEGIN
  FOR q IN
    SELECT k.name, k.max_running, k.max_per_group, k.running, k.waiting, k.paused, k.line_from, k.line_last
    FROM {schema}.jobyard_queue k WHERE k.name = ANY (p_queues || f_queue) ORDER BY k.turn_at, k.turn
  LOOP
    t_name := ARRAY(SELECT u.g FROM unnest(f_queue, f_group) u(q, g) WHERE u.q = q.name);
    t_freed := ARRAY(SELECT u.n FROM unnest(f_queue, f_count) u(q, n) WHERE u.q = q.name);
    freed := coalesce((SELECT sum(n) FROM unnest(t_freed) n), 0);
    room := 0;
    IF p_wanted > 0 AND q.waiting > 0 AND NOT q.paused AND q.name = ANY (p_queues) THEN
      room := greatest(0, least(p_wanted, coalesce(q.max_running, unlimited) - q.running + freed));
    END IF;
    CONTINUE WHEN room = 0 AND freed = 0;
    reach := CASE WHEN room > 0 THEN room + cardinality(t_name) ELSE 0 END;
    -- Those that lost running jobs, and the first in line.
    WITH line AS MATERIALIZED (
      SELECT g.name, g.ctid AS tid, g.turn, g.head, g.gap, g.waiting, g.running, g.paused, g.own_limit
      FROM {schema}.jobyard_group g WHERE g.queue = q.name AND g.open AND g.turn >= q.line_from
      ORDER BY g.turn LIMIT reach)
    SELECT array_agg(s.name), array_agg(s.tid), array_agg(s.turn), array_agg(s.head), array_agg(s.gap), array_agg(s.waiting),
           array_agg(s.running - s.freed), array_agg(s.most), array_agg(s.paused), array_agg(s.freed),
           array_agg(CASE WHEN s.paused THEN 0 ELSE greatest(0, least(room, s.waiting, s.most - s.running + s.freed)) END),
           (SELECT count(*) FROM line) >= reach, (SELECT max(l.turn) FROM line l)
    INTO t_name, t_tid, t_turn, t_head, t_gap, t_waiting, t_running, t_limit, t_paused, t_freed, t_cap, cut, t_last
    FROM (
      SELECT DISTINCT ON (u.turn, u.name) u.name, u.tid, u.turn, u.head, u.gap, u.waiting, u.running, u.paused, u.freed,
        coalesce(u.own_limit, CASE WHEN u.name <> '' THEN q.max_per_group END, unlimited) AS most
      FROM (
        SELECT x.*, f.n AS freed FROM unnest(t_name, t_freed) f(name, n) CROSS JOIN LATERAL (
          SELECT g.name, g.ctid AS tid, g.turn, g.head, g.gap, g.waiting, g.running, g.paused, g.own_limit
          FROM {schema}.jobyard_group g WHERE g.queue = q.name AND g.name = f.name OFFSET 0) x
        UNION ALL
        SELECT l.*, 0 FROM line l) u
      ORDER BY u.turn, u.name, u.freed DESC) s;
    CONTINUE WHEN t_name IS NULL;
    many := many + 1;
    q_name := q_name || q.name;
    q_freed := q_freed || freed;
    q_line_last := q_line_last || q.line_last;
    -- Nobody who was not looked at stands before this.
    q_beyond := q_beyond || CASE WHEN room = 0 THEN q.line_from WHEN cut THEN t_last + 1 ELSE q.line_last + 1 END;
    q_room := q_room || (SELECT least(room, sum(c))::bigint FROM unnest(t_cap) c);
    g_q := g_q || array_fill(many, ARRAY[cardinality(t_name)]);
    g_name := g_name || t_name; g_tid := g_tid || t_tid; g_turn := g_turn || t_turn; g_head := g_head || t_head;
    g_gap := g_gap || t_gap;
    g_waiting := g_waiting || t_waiting; g_running := g_running || t_running; g_limit := g_limit || t_limit;
    g_paused := g_paused || t_paused; g_freed := g_freed || t_freed; g_cap := g_cap || t_cap;
  END LOOP;
  IF many = 0 THEN
    RETURN;
  END IF;

  IF many = 1 THEN
    g_given := {schema}.jobyard_share(g_cap, q_room[1]);
  ELSE
    q_given := {schema}.jobyard_share(q_room, p_wanted);
    FOR i IN 1 .. many LOOP
      t_cap := ARRAY(SELECT u.c FROM unnest(g_q, g_cap) WITH ORDINALITY u(q, c, o) WHERE u.q = i ORDER BY u.o);
      g_given := g_given || {schema}.jobyard_share(t_cap, q_given[i]);
    END LOOP;
  END IF;

  -- The index is read a page at a time, whatever the limit: it pays to say where the jobs must end, by how far apart they
  -- stood before. Where that was too near, or is unknown, the whole page it is.
  FOREACH far IN ARRAY ARRAY[8, 0] LOOP
    SELECT array_agg(u.o), array_agg(r.tid), array_agg(r.ord), array_agg(r.used), array_agg(r.flags)
    INTO a_g, a_tid, a_ord, a_used, a_flags
    FROM unnest(g_q, g_name, g_given, g_head, g_gap) WITH ORDINALITY u(q, name, n, head, gap, o)
    CROSS JOIN LATERAL (
      SELECT v.ctid AS tid, v.ord, v.used, v.flags FROM {schema}.jobyard_ready v
      WHERE v.queue = q_name[u.q] AND v.group_name = u.name AND v.ord >= u.head AND v.ord < CASE
          WHEN far > 0 AND u.gap BETWEEN 1 AND 1099511627776 THEN u.head + far * u.gap * u.n ELSE 9223372036854775807 END
      ORDER BY v.ord LIMIT u.n) r
    WHERE u.n > 0;
    EXIT WHEN coalesce(cardinality(a_g), 0) = (SELECT sum(n) FROM unnest(g_given) n);
  END LOOP;
  IF a_tid IS NOT NULL THEN
    DELETE FROM {schema}.jobyard_ready WHERE ctid = ANY (a_tid);
    INSERT INTO {schema}.jobyard_lease
      (sequence, expires_at, started_at, attempt, flags, token, worker, queue, group_name)
    SELECT u.ord & 4398046511103, p_expires, p_now, u.used + 1, u.flags, p_token, p_worker, q_name[g_q[u.g]], g_name[u.g]
    FROM unnest(a_g, a_ord, a_used, a_flags) u(g, ord, used, flags);
    SELECT array_agg(u.ord & 4398046511103), array_agg(u.used + 1) INTO r_sequence, r_attempt
    FROM unnest(a_ord, a_used) u(ord, used);
    r_place := a_g;
  END IF;

  -- A group goes to the end after each job it is given: who got fewer got the last one earlier.
  UPDATE {schema}.jobyard_group g SET
    waiting = t.waiting, running = t.running, head = t.head, gap = t.gap, turn = t.turn,
    open = t.waiting > 0 AND NOT t.paused AND t.running < t.most
  FROM (
    SELECT u.tid, u.waiting - coalesce(s.n, 0) AS waiting, u.running + coalesce(s.n, 0) AS running, u.most, u.paused,
           coalesce(s.last + 1, u.head) AS head, coalesce((s.last + 1 - u.head) / s.n + 1, u.gap) AS gap,
           CASE WHEN s.n IS NULL THEN u.turn
             ELSE q_line_last[u.q] + row_number() OVER (PARTITION BY u.q ORDER BY s.n, u.o) END AS turn
    FROM unnest(g_q, g_tid, g_turn, g_head, g_gap, g_waiting, g_running, g_limit, g_paused, g_freed)
      WITH ORDINALITY u(q, tid, turn, head, gap, waiting, running, most, paused, freed, o)
    LEFT JOIN (SELECT v.g, count(*) AS n, max(v.ord) AS last FROM unnest(a_g, a_ord) v(g, ord) GROUP BY v.g) s ON s.g = u.o
    WHERE u.freed > 0 OR s.n IS NOT NULL) t
  WHERE g.ctid = t.tid;

  FOR q IN
    SELECT u.q AS i, coalesce(sum(s.n), 0) AS n, count(s.n) AS groups,
           min(u.turn) FILTER (WHERE s.n IS NULL AND u.waiting > 0 AND NOT u.paused AND u.running < u.most) AS first
    FROM unnest(g_q, g_turn, g_waiting, g_running, g_limit, g_paused) WITH ORDINALITY
      u(q, turn, waiting, running, most, paused, o)
    LEFT JOIN (SELECT v.g, count(*) AS n FROM unnest(a_g) v(g) GROUP BY v.g) s ON s.g = u.o
    GROUP BY u.q ORDER BY 2, 1
  LOOP
    UPDATE {schema}.jobyard_queue k SET
      waiting = k.waiting - q.n, running = k.running - q_freed[q.i] + q.n,
      turn_at = CASE WHEN q.n > 0 THEN p_now ELSE k.turn_at END,
      turn = CASE WHEN q.n > 0 THEN nextval('{schema}.jobyard_turn') ELSE k.turn END,
      line_last = k.line_last + q.groups, line_from = least(q.first, q_beyond[q.i])
    WHERE k.name = q_name[q.i];
  END LOOP;
END
$$;
