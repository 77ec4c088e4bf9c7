-- in: expires_at, worker, began after. Its leases that have an end; the table holds running jobs only, so a scan is short.
UPDATE jobyard_lease SET expires_at = ? WHERE worker = ? AND started_at > ? AND external_id IS NULL
