-- in: schedule, instant before which to look, how many. out: at, verdict, job_id, first, count, decided_at; newest first.
SELECT at, verdict, job_id, first, count, decided_at FROM jobyard_tick
WHERE schedule = ? AND at < ? ORDER BY at DESC LIMIT ?
