-- name: now(now) -> the store's clock in ms
SELECT {schema}.jobyard_now($1)

-- name: arm(now, schedule, revision, since (NULL: the last decided instant)) -> no row when a later revision is armed
INSERT INTO {schema}.jobyard_armed AS a (schedule, revision, decided_until)
SELECT $2, $3, coalesce($4, {schema}.jobyard_now($1))
ON CONFLICT (schedule) DO UPDATE SET revision = excluded.revision, decided_until = greatest(a.decided_until, $4)
WHERE a.revision <= excluded.revision RETURNING a.revision

-- name: disarm(schedule, latest revision to disarm (NULL: any)) -> whether it was armed with such a revision
SELECT {schema}.jobyard_disarm(p_schedule => $1, p_revision => $2)

-- name: list_armed(schedule after which to start (NULL: from the start), limit) -> schedule, revision, decided_until
SELECT a.schedule, a.revision, a.decided_until FROM {schema}.jobyard_armed a
WHERE a.schedule >= coalesce($1::text, '') AND a.schedule IS DISTINCT FROM $1 ORDER BY a.schedule LIMIT $2

-- name: decide(now, then the fields of `TickColumns` and of `JobColumns`)
-- -> per tick in order: decision, verdict, job id
SELECT decision, verdict, job_id FROM {schema}.jobyard_decide(
  p_now => $1, p_schedule => $2, p_revision => $3, p_at => $4, p_first => $5, p_count => $6, p_verdict => $7, p_skip => $8,
  p_id => $9, p_kind => $10, p_queue => $11, p_group => $12, p_priority => $13, p_payload => $14, p_max_attempts => $15,
  p_private => $16, p_timeout => $17, p_backoff => $18, p_delay => $19, p_run_at => $20,
  p_unique => $21, p_scope => $22, p_period => $23, p_tags => $24, p_tag_of => $25, p_tag => $26,
  p_parent => $27, p_workflow => $28)

-- name: list_ticks(schedule, instant before which to start (NULL: any), limit)
-- -> at, verdict, job_id, first, count, decided_at; newest first
SELECT t.at, t.verdict, t.job_id, t.first, t.count, t.decided_at FROM {schema}.jobyard_tick t
WHERE t.schedule = $1 AND t.at < coalesce($2::bigint, 9223372036854775807) ORDER BY t.at DESC LIMIT $3

-- name: save_worker(now, id, ms until it expires, data)
INSERT INTO {schema}.jobyard_worker (id, expires_at, seen_at, data)
SELECT $2, least(253402300799999, n.now + $3), n.now, $4 FROM (SELECT {schema}.jobyard_now($1) AS now) n
ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at, seen_at = excluded.seen_at, data = excluded.data

-- name: delete_worker(id)
DELETE FROM {schema}.jobyard_worker WHERE id = $1

-- name: list_workers(now, tolerance in ms) -> seen_at, data of the live workers, by id
SELECT w.seen_at, w.data FROM {schema}.jobyard_worker w WHERE w.expires_at > {schema}.jobyard_now($1)
  AND w.seen_at - $2::bigint <= {schema}.jobyard_now($1) ORDER BY w.id
