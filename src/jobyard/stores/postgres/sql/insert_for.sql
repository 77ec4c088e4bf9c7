-- in: as jobyard_insert_for. out: a row with the sequence, then as jobyard_exchange; or no row.
SELECT * FROM {schema}.jobyard_insert_for($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
