-- in: as jobyard_decide. out: decision, verdict, job_id of each tick, in order.
SELECT decision, verdict, job_id FROM {schema}.jobyard_decide(
  $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26)
