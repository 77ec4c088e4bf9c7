-- in: nothing. out: sequence, turn, finish, revision, the earliest run_at of the delayed or NULL.
SELECT sequence, turn, finish, revision, (SELECT run_at FROM jobyard_delayed ORDER BY run_at LIMIT 1) FROM jobyard_counter
