-- name: apply(now, then the fields of `TransitionRow`) -> whether the token held
SELECT {schema}.jobyard_apply(
  p_now => {schema}.jobyard_now($1), p_sequence => $2, p_token => $3, p_to => $4, p_counted => $5, p_died => $6,
  p_delay => $7, p_signal => $8, p_park => $9, p_external => $10, p_result => $11, p_reason => $12, p_error => $13,
  p_wake => $14, p_expired_before => NULL)

-- name: ended_jobs(ids) -> id and true for each job that has ended, id and false for each that does not exist
SELECT u.id, j.sequence IS NOT NULL FROM unnest($1::text[]) u(id)
LEFT JOIN {schema}.jobyard_job j ON j.id = u.id
LEFT JOIN {schema}.jobyard_done d ON d.sequence = j.sequence
WHERE j.sequence IS NULL OR d.sequence IS NOT NULL

-- name: transaction_status(transaction ids) -> id, 'committed', 'aborted', 'in progress' or NULL (too old)
SELECT x, pg_xact_status(x::xid8) FROM unnest($1::text[]) x
