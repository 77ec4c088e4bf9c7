-- in: now (NULL: the server's), collection, key, the version it must have (NULL: any). out: a row if it was there.
DELETE FROM {schema}.jobyard_record r
WHERE r.collection = $2 AND r.key = $3 AND r.expires_at > {schema}.jobyard_now($1) AND ($4::bigint IS NULL OR r.version = $4)
RETURNING 1
