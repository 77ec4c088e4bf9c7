-- in: schedule after which to start, how many. out: schedule, revision, decided_until.
SELECT a.schedule, a.revision, a.decided_until FROM {schema}.jobyard_armed a
WHERE a.schedule >= coalesce($1::text, '') AND a.schedule IS DISTINCT FROM $1 ORDER BY a.schedule LIMIT $2
