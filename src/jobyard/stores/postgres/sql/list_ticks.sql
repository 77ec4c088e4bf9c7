-- in: schedule, before which instant (NULL: any), how many. out: tick, verdict, job_id, first, count, decided_at.
SELECT t.tick, t.verdict, t.job_id, t.first, t.count, t.decided_at FROM {schema}.jobyard_tick t
WHERE t.schedule = $1 AND t.tick < coalesce($2::bigint, 9223372036854775807) ORDER BY t.tick DESC LIMIT $3
