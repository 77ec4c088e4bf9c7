-- in: as jobyard_insert. out: sequence (0: not created), holder of the unique key.
SELECT sequence, holder FROM {schema}.jobyard_insert(
  $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)
