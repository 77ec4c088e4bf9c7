-- The number of jobs that can be claimed from a queue, at most the wanted number; the caller has locked its row.
-- in: queue, wanted number; per group that is about to lose running jobs: name, number.
CREATE OR REPLACE FUNCTION {schema}.jobyard_room(p_queue text, p_wanted bigint, f_group text[], f_count bigint[])
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  unlimited CONSTANT bigint := 9007199254740992;
  q record;
  room bigint;
BEGIN
  SELECT k.max_running, k.max_per_group, k.running, k.waiting, k.paused, k.line_from INTO q
  FROM {schema}.jobyard_queue k WHERE k.name = p_queue;
  room := least(p_wanted, coalesce(q.max_running, unlimited) - q.running
                          + coalesce((SELECT sum(n) FROM unnest(f_count) n), 0));
  IF room <= 0 OR q.paused OR q.waiting <= 0 THEN
    RETURN 0;
  END IF;
  RETURN (
    SELECT least(room, coalesce(sum(greatest(0, least(room, d.waiting, d.most - d.running))), 0))
    FROM (
      SELECT DISTINCT ON (u.name) u.waiting, u.running - u.freed AS running,
        coalesce(u.own_limit, CASE WHEN u.name <> '' THEN q.max_per_group END, unlimited) AS most
      FROM (
        SELECT x.*, f.n AS freed FROM unnest(f_group, f_count) f(name, n) CROSS JOIN LATERAL (
          SELECT g.name, CASE WHEN g.paused THEN 0 ELSE g.waiting END AS waiting, g.running, g.own_limit
          FROM {schema}.jobyard_group g WHERE g.queue = p_queue AND g.name = f.name OFFSET 0) x
        UNION ALL
        (SELECT g.name, g.waiting, g.running, g.own_limit, 0
         FROM {schema}.jobyard_group g WHERE g.queue = p_queue AND g.open AND g.turn >= q.line_from
         ORDER BY g.turn LIMIT room + cardinality(f_group))) u
      ORDER BY u.name, u.freed DESC) d);
END
$$;
