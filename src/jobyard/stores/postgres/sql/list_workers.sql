-- in: now (NULL: the server's). out: seen_at and data of the live ones, by id.
SELECT w.seen_at, w.data FROM {schema}.jobyard_worker w WHERE w.expires_at > {schema}.jobyard_now($1) ORDER BY w.id
