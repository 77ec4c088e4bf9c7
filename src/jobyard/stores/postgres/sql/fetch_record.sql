-- in: now (NULL: the server's), collection, key. out: version, data.
SELECT r.version, r.data FROM {schema}.jobyard_record r
WHERE r.collection = $2 AND r.key = $3 AND r.expires_at > {schema}.jobyard_now($1)
