-- in: queue, key, job_id, until.
INSERT OR REPLACE INTO jobyard_unique VALUES (?, ?, ?, ?)
