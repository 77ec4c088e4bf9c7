-- in: as jobyard_change. out: per known id: whether its state allowed it.
SELECT id, fits FROM {schema}.jobyard_change($1, $2, $3, $4, $5)
