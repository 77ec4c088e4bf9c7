-- in: reason, sequence.
UPDATE jobyard_lease SET cancel = ? WHERE sequence = ?
