-- {1} rows of {0} without their job{2}
SELECT t, n, '' FROM (
  SELECT 'extra' AS t, count(*) AS n FROM {schema}.jobyard_extra e
    WHERE NOT EXISTS (SELECT FROM {schema}.jobyard_job j WHERE j.sequence = e.sequence)
  UNION ALL SELECT 'tag', count(*) FROM {schema}.jobyard_tag e
    WHERE NOT EXISTS (SELECT FROM {schema}.jobyard_job j WHERE j.sequence = e.sequence)) u
WHERE n > 0
