-- in: schedule. Its rowcount says whether it was armed.
DELETE FROM jobyard_armed WHERE schedule = ?
