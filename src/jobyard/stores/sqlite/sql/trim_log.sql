-- in: name, last number to go. Its rowcount says how many.
DELETE FROM jobyard_log WHERE name = ? AND number <= ?
