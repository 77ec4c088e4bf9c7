-- in: ids. out: those that have ended (true) or are gone (false).
SELECT u.id, j.sequence IS NOT NULL FROM unnest($1::text[]) u(id)
LEFT JOIN {schema}.jobyard_job j ON j.id = u.id
LEFT JOIN {schema}.jobyard_done d ON d.sequence = j.sequence
WHERE j.sequence IS NULL OR d.sequence IS NOT NULL
