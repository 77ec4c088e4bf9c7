-- in: now. out: a row if there is one.
SELECT 1 FROM jobyard_lease WHERE expires_at <= ? LIMIT 1
