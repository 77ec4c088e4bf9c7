-- in: schedule.
DELETE FROM jobyard_tick WHERE schedule = ?
