-- in: as jobyard_insert_one. out: its sequence, or 0.
SELECT {schema}.jobyard_insert_one($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
