-- in: external_id, expires_at, sequence, token.
UPDATE jobyard_lease SET external_id = ?, expires_at = ? WHERE sequence = ? AND token = ?
