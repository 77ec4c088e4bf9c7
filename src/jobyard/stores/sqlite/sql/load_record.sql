-- in: collection, key. out: version, expires_at, data.
SELECT version, expires_at, data FROM jobyard_record WHERE collection = ? AND key = ?
