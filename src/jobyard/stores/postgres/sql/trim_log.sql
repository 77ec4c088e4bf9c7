-- in: log, the last number to go. out: how many went.
WITH gone AS (DELETE FROM {schema}.jobyard_log l WHERE l.name = $1 AND l.number <= $2 RETURNING l.number)
SELECT count(*) FROM gone
