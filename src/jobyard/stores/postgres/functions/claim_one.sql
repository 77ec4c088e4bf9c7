-- Free slots and claim jobs in one queue, whose row the caller has locked; each group involved is read and written once.
-- in: now, worker, token, end of the leases, queue, number of jobs; per group that lost running jobs: name, number.
-- out: per claimed job, group after group: its ord (the sequence in its low 42 bits), attempts used, the place of its
--     group in line. The client puts them in the order of single claims.
CREATE OR REPLACE FUNCTION {schema}.jobyard_claim_one(
  p_now bigint, p_worker text, p_token text, p_expires bigint, p_queue text, p_wanted bigint,
  f_group text[], f_count bigint[],
  OUT a_ord bigint[], OUT a_used integer[], OUT a_g integer[]
) LANGUAGE plpgsql AS $$
DECLARE
  unlimited CONSTANT bigint := 9007199254740992;
  q record;
  room bigint := 0;
  freed bigint := 0;
  reach bigint;
  total bigint;    -- room of all groups that were read
  ends boolean;    -- the whole line was read
  last bigint;
  beyond bigint;   -- no group that was not read has a turn before this
  -- Per group that lost jobs or is near the front, in the order of the line.
  g_name text[]; g_tid tid[]; g_turn bigint[]; g_head bigint[]; g_gap bigint[]; g_waiting bigint[]; g_running bigint[];
  g_limit bigint[]; g_paused boolean[]; g_freed bigint[]; g_cap bigint[]; g_given bigint[];
  a_tid tid[]; a_flags integer[];
  far bigint;
  given bigint := 0;
  touched bigint;
  first bigint;
BEGIN
  SELECT k.max_running, k.max_per_group, k.running, k.waiting, k.paused, k.line_from, k.line_last INTO q
  FROM {schema}.jobyard_queue k WHERE k.name = p_queue;
  IF cardinality(f_group) > 0 THEN
    SELECT sum(n) INTO freed FROM unnest(f_count) n;
  END IF;
  IF p_wanted > 0 AND q.waiting > 0 AND NOT q.paused THEN
    room := greatest(0, least(p_wanted, coalesce(q.max_running, unlimited) - q.running + freed));
  END IF;
  IF room = 0 AND freed = 0 THEN
    RETURN;
  END IF;
  IF freed = 0 THEN
    SELECT array_agg(s.name), array_agg(s.tid), array_agg(s.turn), array_agg(s.head), array_agg(s.gap),
           array_agg(s.waiting), array_agg(s.running), array_agg(s.most), array_agg(false), array_agg(0), array_agg(s.cap),
           sum(s.cap), count(*) < room, max(s.turn)
    INTO g_name, g_tid, g_turn, g_head, g_gap, g_waiting, g_running, g_limit, g_paused, g_freed, g_cap, total, ends, last
    FROM (
      SELECT l.*, least(room, l.waiting, l.most - l.running) AS cap FROM (
        SELECT g.name, g.ctid AS tid, g.turn, g.head, g.gap, g.waiting, g.running,
               coalesce(g.own_limit, CASE WHEN g.name <> '' THEN q.max_per_group END, unlimited) AS most
        FROM {schema}.jobyard_group g WHERE g.queue = p_queue AND g.open AND g.turn >= q.line_from
        ORDER BY g.turn LIMIT room) l) s;
  ELSE
    reach := CASE WHEN room > 0 THEN room + cardinality(f_group) ELSE 0 END;
    -- The groups that lost running jobs, and the first in line; some are both.
    WITH line AS MATERIALIZED (
      SELECT g.name, g.ctid AS tid, g.turn, g.head, g.gap, g.waiting, g.running, g.paused, g.own_limit
      FROM {schema}.jobyard_group g WHERE g.queue = p_queue AND g.open AND g.turn >= q.line_from
      ORDER BY g.turn LIMIT reach)
    SELECT array_agg(s.name), array_agg(s.tid), array_agg(s.turn), array_agg(s.head), array_agg(s.gap),
           array_agg(s.waiting), array_agg(s.running), array_agg(s.most), array_agg(s.paused), array_agg(s.freed),
           array_agg(s.cap), sum(s.cap), (SELECT count(*) FROM line) < reach, (SELECT max(l.turn) FROM line l)
    INTO g_name, g_tid, g_turn, g_head, g_gap, g_waiting, g_running, g_limit, g_paused, g_freed, g_cap, total, ends, last
    FROM (
      SELECT d.*, CASE WHEN d.paused THEN 0 ELSE greatest(0, least(room, d.waiting, d.most - d.running)) END AS cap
      FROM (
        SELECT DISTINCT ON (u.turn, u.name) u.name, u.tid, u.turn, u.head, u.gap, u.waiting, u.running - u.freed AS running,
          u.paused, u.freed, coalesce(u.own_limit, CASE WHEN u.name <> '' THEN q.max_per_group END, unlimited) AS most
        FROM (
          SELECT x.*, f.n AS freed FROM unnest(f_group, f_count) f(name, n) CROSS JOIN LATERAL (
            SELECT g.name, g.ctid AS tid, g.turn, g.head, g.gap, g.waiting, g.running, g.paused, g.own_limit
            FROM {schema}.jobyard_group g WHERE g.queue = p_queue AND g.name = f.name OFFSET 0) x
          UNION ALL
          SELECT l.*, 0 FROM line l) u
        ORDER BY u.turn, u.name, u.freed DESC) d) s;
  END IF;
  IF g_name IS NULL THEN
    RETURN;
  END IF;
  beyond := CASE WHEN room = 0 THEN q.line_from WHEN ends THEN q.line_last + 1 ELSE last + 1 END;
  g_given := CASE WHEN total <= room THEN g_cap ELSE {schema}.jobyard_share(g_cap, room) END;

  IF room > 0 AND total > 0 THEN
    -- An index scan reads a whole page whatever the LIMIT, so an upper bound saves work: it is estimated by how far apart
    -- the group's jobs were before. When that finds too few jobs, or is unknown, scan again without a bound.
    FOREACH far IN ARRAY ARRAY[8, 0] LOOP
      SELECT array_agg(u.o), array_agg(r.tid), array_agg(r.ord), array_agg(r.used), array_agg(r.flags)
      INTO a_g, a_tid, a_ord, a_used, a_flags
      FROM unnest(g_name, g_given, g_head, g_gap) WITH ORDINALITY u(name, n, head, gap, o)
      CROSS JOIN LATERAL (
        SELECT v.ctid AS tid, v.ord, v.used, v.flags FROM {schema}.jobyard_ready v
        WHERE v.queue = p_queue AND v.group_name = u.name AND v.ord >= u.head AND v.ord < CASE
            WHEN far > 0 AND u.gap BETWEEN 1 AND 1099511627776 THEN u.head + far * u.gap * u.n
            ELSE 9223372036854775807 END
        ORDER BY v.ord LIMIT u.n) r
      WHERE u.n > 0;
      given := coalesce(cardinality(a_g), 0);
      EXIT WHEN given = least(total, room);
    END LOOP;
  END IF;
  IF given > 0 THEN
    DELETE FROM {schema}.jobyard_ready WHERE ctid = ANY (a_tid);
    INSERT INTO {schema}.jobyard_lease
      (sequence, expires_at, started_at, attempt, flags, token, worker, queue, group_name)
    SELECT u.ord & 4398046511103, p_expires, p_now, u.used + 1, u.flags, p_token, p_worker, p_queue, g_name[u.g]
    FROM unnest(a_g, a_ord, a_used, a_flags) u(g, ord, used, flags);
  END IF;

  -- A group goes to the end of the line after each job: one that got fewer jobs got its last one earlier.
  UPDATE {schema}.jobyard_group g SET
    waiting = t.waiting, running = t.running, head = t.head, gap = t.gap, turn = t.turn,
    open = t.waiting > 0 AND NOT t.paused AND t.running < t.most
  FROM (
    SELECT u.tid, u.waiting - coalesce(s.n, 0) AS waiting, u.running + coalesce(s.n, 0) AS running, u.most, u.paused,
           coalesce(s.last + 1, u.head) AS head, coalesce((s.last + 1 - u.head) / s.n + 1, u.gap) AS gap,
           CASE WHEN s.n IS NULL THEN u.turn ELSE q.line_last + row_number() OVER (ORDER BY s.n, u.o) END AS turn
    FROM unnest(g_tid, g_turn, g_head, g_gap, g_waiting, g_running, g_limit, g_paused, g_freed)
      WITH ORDINALITY u(tid, turn, head, gap, waiting, running, most, paused, freed, o)
    LEFT JOIN (SELECT v.g, count(*) AS n, max(v.ord) AS last FROM unnest(a_g, a_ord) v(g, ord) GROUP BY v.g) s ON s.g = u.o
    WHERE u.freed > 0 OR s.n IS NOT NULL) t
  WHERE g.ctid = t.tid;
  GET DIAGNOSTICS touched = ROW_COUNT;

  IF room = 0 OR total > room OR given < total THEN
    -- Some open groups got no job: the line begins with the first of them.
    SELECT min(u.turn) INTO first
    FROM unnest(g_turn, g_waiting, g_running, g_limit, g_paused) WITH ORDINALITY u(turn, waiting, running, most, paused, o)
    WHERE u.waiting > 0 AND NOT u.paused AND u.running < u.most AND NOT u.o = ANY (coalesce(a_g, '{}'));
  END IF;
  UPDATE {schema}.jobyard_queue k SET
    waiting = k.waiting - given, running = k.running - freed + given,
    turn_at = CASE WHEN given > 0 THEN p_now ELSE k.turn_at END,
    turn = CASE WHEN given > 0 THEN nextval('{schema}.jobyard_turn') ELSE k.turn END,
    line_last = k.line_last + touched, line_from = least(first, beyond)
  WHERE k.name = p_queue;
END
$$;
