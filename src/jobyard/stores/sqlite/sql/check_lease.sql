-- in: sequence, token. out: attempt, if the token holds.
SELECT attempt FROM jobyard_lease WHERE sequence = ? AND token = ?
