-- in: name, number at which to end. out: the last number up to there, or NULL.
SELECT max(number) FROM jobyard_log WHERE name = ? AND number <= ?
