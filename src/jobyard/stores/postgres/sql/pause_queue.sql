-- in: name, paused.
SELECT {schema}.jobyard_pause_queue($1, $2)
