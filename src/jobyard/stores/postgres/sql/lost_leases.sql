-- in: worker, tokens of exchanges that it never heard of. out: the leases that they gave it.
SELECT j.id, l.sequence, l.token, l.attempt, j.deaths, l.cancel FROM {schema}.jobyard_lease l
JOIN {schema}.jobyard_job j ON j.sequence = l.sequence
WHERE l.worker = $1 AND l.token = ANY ($2::text[]) AND l.external_id IS NULL ORDER BY l.sequence
