-- Update the schedules of new ticks: their last decided instant, and at most 100 ticks of each.
-- in: schedule and instant of each tick; the caller has locked the rows of the schedules.
CREATE OR REPLACE FUNCTION {schema}.jobyard_note_ticks(p_schedule text[], p_at bigint[]) RETURNS void LANGUAGE plpgsql
AS $$
DECLARE
  keeps CONSTANT integer := 100;
BEGIN
  WITH made AS (
    SELECT a.tid, m.last, a.kept + m.many AS kept, o.tids, coalesce(o.last + 1, a.kept_from) AS kept_from
    FROM (SELECT u.s AS schedule, max(u.at) AS last, count(*) AS many FROM unnest(p_schedule, p_at) u(s, at)
          GROUP BY u.s) m
    CROSS JOIN LATERAL (SELECT x.ctid AS tid, x.kept, x.kept_from FROM {schema}.jobyard_armed x
                        WHERE x.schedule = m.schedule OFFSET 0) a
    CROSS JOIN LATERAL (
      SELECT array_agg(t.tid) AS tids, max(t.at) AS last FROM (
        SELECT t.ctid AS tid, t.at FROM {schema}.jobyard_tick t
        WHERE t.schedule = m.schedule AND t.at >= a.kept_from ORDER BY t.at
        LIMIT greatest(0, a.kept + m.many - keeps)) t
      OFFSET 0) o),
  gone AS (
    DELETE FROM {schema}.jobyard_tick WHERE ctid = ANY (ARRAY(SELECT unnest(m.tids) FROM made m)))
  UPDATE {schema}.jobyard_armed a
  SET decided_until = m.last, kept = least(m.kept, keeps), kept_from = m.kept_from
  FROM made m WHERE a.ctid = m.tid;
END
$$;
