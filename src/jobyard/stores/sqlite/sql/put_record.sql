-- in: collection, key, version, expires_at, data.
INSERT OR REPLACE INTO jobyard_record VALUES (?, ?, ?, ?, ?)
