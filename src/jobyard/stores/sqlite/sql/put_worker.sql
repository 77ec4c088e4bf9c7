-- in: id, expires_at, data.
INSERT OR REPLACE INTO jobyard_worker VALUES (?, ?, ?)
