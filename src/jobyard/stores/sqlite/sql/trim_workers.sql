-- in: now.
DELETE FROM jobyard_worker WHERE expires_at <= ?
