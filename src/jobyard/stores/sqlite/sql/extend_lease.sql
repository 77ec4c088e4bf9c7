-- in: expires_at, sequence, token. Handed-off leases have no end to move.
UPDATE jobyard_lease SET expires_at = CASE WHEN external_id IS NULL THEN ? ELSE expires_at END
WHERE sequence = ? AND token = ?
