-- in: as jobyard_exchange. out: one row per lease, then one with the rest of the answer.
SELECT * FROM {schema}.jobyard_exchange(
  $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25)
