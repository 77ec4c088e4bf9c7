-- in: as jobyard_put_record. out: its new version, or NULL.
SELECT {schema}.jobyard_put_record($1, $2, $3, $4, $5, $6)
