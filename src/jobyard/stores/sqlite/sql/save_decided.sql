-- in: the last decided instant, schedule.
UPDATE jobyard_armed SET decided_until = ? WHERE schedule = ?
