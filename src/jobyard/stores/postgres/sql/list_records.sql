-- in: now (NULL: the server's), collection, key after which to start, how many. out: key, version, data.
SELECT r.key, r.version, r.data FROM {schema}.jobyard_record r
WHERE r.collection = $2 AND r.key >= coalesce($3::text, '') AND r.key IS DISTINCT FROM $3
  AND r.expires_at > {schema}.jobyard_now($1)
ORDER BY r.key LIMIT $4
