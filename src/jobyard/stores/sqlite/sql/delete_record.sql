-- in: collection, key.
DELETE FROM jobyard_record WHERE collection = ? AND key = ?
