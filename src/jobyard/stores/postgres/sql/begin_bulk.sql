-- in: as jobyard_begin_bulk. out: now, the sequences or NULL.
SELECT o_now, o_sequences FROM {schema}.jobyard_begin_bulk($1, $2, $3)
