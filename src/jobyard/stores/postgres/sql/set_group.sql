-- in: as jobyard_set_group.
SELECT {schema}.jobyard_set_group($1, $2, $3, $4, $5, $6)
