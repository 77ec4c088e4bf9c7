-- in: as jobyard_signal. out: woke, final state; no row when there is no such job.
SELECT woke, final FROM {schema}.jobyard_signal($1, $2, $3, $4)
