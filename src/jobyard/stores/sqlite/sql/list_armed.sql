-- in: schedule after which to start, how many. out: schedule, revision, decided_until.
SELECT schedule, revision, decided_until FROM jobyard_armed WHERE schedule > ? ORDER BY schedule LIMIT ?
