-- in: as jobyard_configure.
SELECT {schema}.jobyard_configure($1, $2, $3, $4, $5, $6, $7, $8, $9)
