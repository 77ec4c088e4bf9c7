-- in: collection, key after which to start, now, how many.
SELECT key, version, data FROM jobyard_record
WHERE collection = ? AND key > ? AND expires_at > ? ORDER BY key LIMIT ?
