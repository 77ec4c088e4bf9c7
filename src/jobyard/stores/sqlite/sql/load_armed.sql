-- in: JSON list of schedules. out: schedule, revision, decided_until.
SELECT schedule, revision, decided_until FROM jobyard_armed WHERE schedule IN (SELECT value FROM json_each(?))
