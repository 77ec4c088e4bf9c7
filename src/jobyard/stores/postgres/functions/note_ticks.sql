-- Ticks were recorded: their schedules are decided until then, and the oldest records beyond the newest 100 go.
-- in: schedule and instant of each; the caller holds the rows of the schedules.
CREATE OR REPLACE FUNCTION {schema}.jobyard_note_ticks(p_schedule text[], p_at bigint[]) RETURNS void LANGUAGE plpgsql
SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
  keeps CONSTANT integer := 100;
BEGIN
  WITH made AS (
    SELECT m.schedule, m.last, k.kept + m.many AS kept, o.tids, coalesce(o.last + 1, k.kept_from) AS kept_from
    FROM (SELECT u.s AS schedule, max(u.a) AS last, count(*) AS many FROM unnest(p_schedule, p_at) u(s, a) GROUP BY u.s) m
    CROSS JOIN LATERAL (SELECT s.kept, s.kept_from FROM {schema}.jobyard_schedule s
                        WHERE s.name = m.schedule OFFSET 0) k
    LEFT JOIN LATERAL (
      SELECT array_agg(t.tid) AS tids, max(t.tick) AS last FROM (
        SELECT t.ctid AS tid, t.tick FROM {schema}.jobyard_tick t
        WHERE t.schedule = m.schedule AND t.tick >= k.kept_from ORDER BY t.tick
        LIMIT greatest(0, k.kept + m.many - keeps)) t
      OFFSET 0) o ON true),
  gone AS (
    DELETE FROM {schema}.jobyard_tick WHERE ctid = ANY (ARRAY(SELECT unnest(m.tids) FROM made m)))
  UPDATE {schema}.jobyard_schedule s
  SET decided_until = m.last, kept = least(m.kept, keeps), kept_from = m.kept_from
  FROM made m WHERE s.name = m.schedule;
END
$$;
