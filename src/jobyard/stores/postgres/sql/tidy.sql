-- in: now (NULL: the server's), queues (empty: all).
SELECT {schema}.jobyard_tidy($1, $2)
