-- name: checkpoint(now, then the fields of `CheckpointColumns`)
-- -> per entry: its 1-based position, number, time, data if another entry was there first; per lost lease: minus the
-- position of its checkpoint
SELECT place, number, at, data FROM {schema}.jobyard_checkpoint(
  p_now => $1, p_sequence => $2, p_token => $3, p_payload => $4, e_of => $5, e_key => $6, e_data => $7, t_of => $8,
  t_scope => $9, t_key => $10)

-- name: list_history(job id, scope, number after which to start, limit) -> key, data, number, at; in order
SELECT h.key, h.data, h.number, h.at FROM {schema}.jobyard_history h
WHERE h.sequence = (SELECT j.sequence FROM {schema}.jobyard_job j WHERE j.id = $1) AND h.scope = $2 AND h.number > $3
ORDER BY h.number LIMIT $4

-- name: list_histories(job ids, scopes, limit of each) -> 1-based position, key, data, number, at; in order
SELECT u.o, h.key, h.data, h.number, h.at FROM unnest($1::text[], $2::text[]) WITH ORDINALITY u(id, scope, o)
CROSS JOIN LATERAL (SELECT j.sequence FROM {schema}.jobyard_job j WHERE j.id = u.id OFFSET 0) j
CROSS JOIN LATERAL (SELECT k.key, k.data, k.number, k.at FROM {schema}.jobyard_history k
                    WHERE k.sequence = j.sequence AND k.scope = u.scope ORDER BY k.number LIMIT $3) h
ORDER BY u.o, h.number

-- name: deliver(now, then one element per delivery: job id, scope, key, data; ids of ends to forget)
-- -> whether a job became due
SELECT {schema}.jobyard_deliver(p_now => $1, p_id => $2, p_scope => $3, p_key => $4, p_data => $5, p_ended => $6)

-- name: list_ended(limit) -> job id, state (NULL: deleted), parent, whether it is a workflow, result, reason; oldest first
SELECT e.job_id, e.state, e.parent, e.is_workflow, e.result, e.reason FROM {schema}.jobyard_ended e
ORDER BY e.number LIMIT $1

-- name: delete_ended(job ids)
DELETE FROM {schema}.jobyard_ended e WHERE e.job_id = ANY ($1::text[])
