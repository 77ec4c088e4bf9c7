-- in: now (NULL: the server's), schedule, revision, since (NULL: the last decided). out: no row when a later one is armed.
INSERT INTO {schema}.jobyard_armed AS a (schedule, revision, decided_until)
SELECT $2, $3, coalesce($4, {schema}.jobyard_now($1))
ON CONFLICT (schedule) DO UPDATE SET revision = excluded.revision, decided_until = greatest(a.decided_until, $4)
WHERE a.revision <= excluded.revision RETURNING a.revision
