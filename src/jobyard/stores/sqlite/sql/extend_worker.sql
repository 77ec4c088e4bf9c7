-- in: expires_at, worker. All its leases that have an end; the table holds running jobs only, so a scan is short.
UPDATE jobyard_lease SET expires_at = ? WHERE worker = ? AND external_id IS NULL
