-- in: nothing. out: sequence, turn, finish, revision.
SELECT sequence, turn, finish, revision FROM jobyard_counter
