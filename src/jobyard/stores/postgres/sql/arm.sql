-- in: now (NULL: the server's), schedule, revision, since (NULL: the last decided). out: no row when a later one is armed.
INSERT INTO {schema}.jobyard_schedule AS k (name, revision, decided_until)
SELECT $2, $3, coalesce($4, {schema}.jobyard_now($1))
ON CONFLICT (name) DO UPDATE SET revision = excluded.revision, decided_until = greatest(k.decided_until, $4)
WHERE k.revision <= excluded.revision RETURNING k.revision
