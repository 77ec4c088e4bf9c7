-- in: now (NULL: the server's), how many. out: leases that ran out; the table holds running jobs only.
-- What somebody is settling right now in a transaction of his own is left alone: it has its own end.
SELECT l.sequence, l.token, l.worker, l.attempt, l.queue, l.group_name, l.cancel, j.id, j.deaths, n.now
FROM (SELECT {schema}.jobyard_now($1) AS now) n, {schema}.jobyard_lease l, {schema}.jobyard_job j
WHERE l.expires_at <= n.now AND l.expires_at < 253402300799999 AND j.sequence = l.sequence
ORDER BY l.expires_at, l.sequence LIMIT $2 FOR KEY SHARE OF l SKIP LOCKED
