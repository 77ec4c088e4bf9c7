-- in: now (NULL: the server's), log, data. out: the entry's number.
SELECT {schema}.jobyard_append_log($1, $2, $3)
