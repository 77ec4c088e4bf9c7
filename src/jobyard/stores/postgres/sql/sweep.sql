-- in: now (NULL: the server's), at most how many of each.
SELECT {schema}.jobyard_sweep($1, $2)
