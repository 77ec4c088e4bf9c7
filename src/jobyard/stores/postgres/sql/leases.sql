-- name: extend(now, worker, sequences, tokens, lease in ms, window in ms for unacknowledged leases (NULL: none))
-- -> 1-based positions of the keys that no longer hold
SELECT o FROM {schema}.jobyard_extend(
  p_now => $1, p_worker => $2, p_sequences => $3, p_tokens => $4, p_lease => $5, p_unseen => $6) o

-- name: cancelled_leases(worker) -> its running jobs whose cancel was requested: id, sequence, token, reason
SELECT j.id, l.sequence, l.token, l.cancel FROM {schema}.jobyard_lease l
JOIN {schema}.jobyard_job j ON j.sequence = l.sequence
WHERE l.worker = $1 AND l.cancel IS NOT NULL ORDER BY l.sequence

-- name: report(now, then the fields of `ReportRow`) -> whether the token holds
SELECT {schema}.jobyard_report(
  p_now => $1, p_sequence => $2, p_token => $3, p_progress => $4, p_lines => $5, p_step_name => $6, p_step_runs => $7,
  p_step => $8)

-- name: expired_leases(now, limit, as of (NULL: now), longest in ms (NULL: any))
-- -> sequence, token, worker, attempt, queue, group, cancel reason (NULL for a workflow that ends itself), job id, deaths,
-- now, judged at, whether it is too long, whether it is a workflow that has begun
-- Leases that have expired, and those that end too late; without those that a caller's transaction is settling: that
-- settlement decides.
SELECT l.sequence, l.token, l.worker, l.attempt, l.queue, l.group_name,
  CASE WHEN j.cancel IS NOT NULL OR j.flags & 32 = 0 OR NOT {schema}.jobyard_has_begun(j.sequence) THEN l.cancel END,
  j.id, j.deaths, n.now, n.judged_at,
  l.expires_at > n.judged_at, j.flags & 32 <> 0 AND {schema}.jobyard_has_begun(j.sequence)
FROM (SELECT t.now, least(t.now, $3::bigint) AS judged_at, t.now + $4::bigint AS longest
      FROM (SELECT {schema}.jobyard_now($1) AS now) t) n, {schema}.jobyard_lease l, {schema}.jobyard_job j
WHERE (l.expires_at <= n.judged_at OR l.expires_at > n.longest) AND l.expires_at < 253402300799999
  AND j.sequence = l.sequence
ORDER BY l.expires_at, l.sequence LIMIT $2 FOR KEY SHARE OF l SKIP LOCKED

-- name: shorten(now, longest in ms, sequences)
SELECT {schema}.jobyard_shorten(p_now => $1, p_longest => $2, p_sequences => $3)

-- name: adopt(now, then the fields of `PlainJob` and of `Adoption`) -> sequence
SELECT {schema}.jobyard_adopt(
  p_now => $1, p_id => $2, p_kind => $3, p_queue => $4, p_group => $5, p_priority => $6, p_payload => $7,
  p_max_attempts => $8, p_timeout => $9, p_backoff => $10, p_private => $11, p_unique => $12, p_scope => $13,
  p_period => $14, p_tags => $15, p_tag => $16, p_worker => $17, p_token => $18, p_external => $19, p_parent => $20,
  p_workflow => $21)

-- name: signal(now, job id, signal name, data, key of the entry, most signals of the name)
-- -> whether the job woke, its final state if it has ended, whether it keeps too many; no row when it does not exist
SELECT woke, final, is_full FROM {schema}.jobyard_signal(
  p_now => $1, p_id => $2, p_name => $3, p_data => $4, p_key => $5, p_most => $6)
