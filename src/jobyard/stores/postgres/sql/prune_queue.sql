-- in: as jobyard_prune_queue. out: how many.
SELECT {schema}.jobyard_prune_queue($1, $2, $3)
