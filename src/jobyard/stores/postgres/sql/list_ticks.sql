-- in: schedule, before which instant (NULL: any), how many. out: at, verdict, job_id, first, count, decided_at.
SELECT t.at, t.verdict, t.job_id, t.first, t.count, t.decided_at FROM {schema}.jobyard_tick t
WHERE t.schedule = $1 AND t.at < coalesce($2::bigint, 9223372036854775807) ORDER BY t.at DESC LIMIT $3
