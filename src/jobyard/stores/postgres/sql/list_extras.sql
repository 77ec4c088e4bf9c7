-- in: sequences, kinds. out: sequence, what, at, finished_at, data in order.
SELECT e.sequence, e.what, e.at, e.finished_at, e.data FROM {schema}.jobyard_extra e
WHERE e.sequence = ANY ($1::bigint[]) AND e.what = ANY ($2::text[]) ORDER BY e.sequence, e.what, e.number
