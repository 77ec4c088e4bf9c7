-- in: now (NULL: the server's), id, ms, data.
INSERT INTO {schema}.jobyard_worker (id, expires_at, seen_at, data)
SELECT $2, least(253402300799999, n.now + $3), n.now, $4 FROM (SELECT {schema}.jobyard_now($1) AS now) n
ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at, seen_at = excluded.seen_at, data = excluded.data
