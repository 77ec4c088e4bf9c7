-- in: as jobyard_report. out: whether the token holds.
SELECT {schema}.jobyard_report($1, $2, $3, $4, $5, $6, $7, $8)
