-- in: now. out: data of the live ones.
SELECT data FROM jobyard_worker WHERE expires_at > ? ORDER BY id
