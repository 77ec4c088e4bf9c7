-- in: schedule, the latest revision that may be ended (NULL: any). out: whether it was armed, and no later.
SELECT {schema}.jobyard_disarm($1, $2)
