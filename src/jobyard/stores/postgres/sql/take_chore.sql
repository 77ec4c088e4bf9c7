-- in: name, ms that must have gone by since somebody did it. out: a row for the one who is to do it now.
INSERT INTO {schema}.jobyard_chore AS c (name, at) VALUES ($1, {schema}.jobyard_now(NULL))
ON CONFLICT (name) DO UPDATE SET at = excluded.at WHERE c.at <= excluded.at - $2::bigint OR c.at > excluded.at
RETURNING 1
