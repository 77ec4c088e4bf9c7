-- job {0} stands in {1} places{2}
WITH places AS (
  SELECT ord & 4398046511103 AS s FROM {schema}.jobyard_ready
  UNION ALL SELECT sequence FROM {schema}.jobyard_delayed UNION ALL SELECT sequence FROM {schema}.jobyard_lease
  UNION ALL SELECT sequence FROM {schema}.jobyard_done),
counted AS (SELECT s, count(*) n FROM places GROUP BY s)
SELECT coalesce(j.sequence, c.s), coalesce(c.n, 0), CASE WHEN j.sequence IS NULL THEN ' but does not exist' ELSE '' END
FROM {schema}.jobyard_job j FULL JOIN counted c ON c.s = j.sequence
WHERE j.sequence IS NULL OR coalesce(c.n, 0) <> 1
