-- in: schedule after which to start, how many. out: name, revision, decided_until.
SELECT k.name, k.revision, k.decided_until FROM {schema}.jobyard_schedule k
WHERE k.name >= coalesce($1::text, '') AND k.name IS DISTINCT FROM $1 ORDER BY k.name LIMIT $2
