-- in: schedule. out: whether it was armed.
SELECT {schema}.jobyard_disarm($1)
