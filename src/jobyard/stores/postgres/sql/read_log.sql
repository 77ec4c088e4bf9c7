-- in: log, number after which to start, how many. out: number, at, data.
SELECT l.number, l.at, l.data FROM {schema}.jobyard_log l WHERE l.name = $1 AND l.number > $2 ORDER BY l.number LIMIT $3
