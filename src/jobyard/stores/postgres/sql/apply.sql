-- in: now, sequence, token, the transition's fields. out: whether the token held.
SELECT {schema}.jobyard_apply(
  {schema}.jobyard_now($1), $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, NULL)
