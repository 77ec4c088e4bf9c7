-- name: configure(now, queue, then the fields of `QueueSettings`)
SELECT {schema}.jobyard_configure(
  p_now => $1, p_queue => $2, p_max_running => $3, p_max_per_group => $4, p_max_waiting => $5,
  p_max_waiting_per_group => $6, p_keep_completed => $7, p_keep_failed => $8, p_keep_completed_seconds => $9,
  p_keep_failed_seconds => $10, p_keep_at_most => $11)

-- name: pause_queue(queue, paused)
SELECT {schema}.jobyard_pause_queue(p_queue => $1, p_paused => $2)

-- name: set_group(now, queue, group, paused (NULL: unchanged), whether the limit changes, limit)
SELECT {schema}.jobyard_set_group(
  p_now => $1, p_queue => $2, p_group => $3, p_paused => $4, p_has_limit => $5, p_limit => $6)

-- name: fold_in(now, queues)
-- Fold in what is new in these queues, at most as much as a claim does.
SELECT {schema}.jobyard_tidy(p_now => $1, p_queues => $2)

-- name: foldable_queues(now, limit) -> names of queues with something to fold in, at random, so that all get their turn
SELECT n FROM unnest({schema}.jobyard_candidates({schema}.jobyard_now($1), '{}', false, false)) n ORDER BY random() LIMIT $2

-- name: remove_queue(name) -> whether it existed; NULL: it has jobs
SELECT {schema}.jobyard_remove_queue(p_queue => $1)

-- name: list_queues(now, cap) -> name, settings in the order of `QueueSettings`, paused, counts; by name
SELECT * FROM {schema}.jobyard_list_queues(p_now => $1, p_cap => $2)

-- name: removes_soon(seconds, number) -> whether a queue keeps ended jobs for less, or at most fewer
SELECT EXISTS (SELECT FROM {schema}.jobyard_queue k
  WHERE least(k.keep_completed_seconds, k.keep_failed_seconds) < $1 OR k.keep_at_most < $2)

-- name: next_queue(name) -> name of the next queue, if any
SELECT k.name FROM {schema}.jobyard_queue k WHERE k.name > $1 ORDER BY k.name LIMIT 1

-- name: load_queue(name) -> name, limits, paused, turn, number of running jobs
SELECT k.name, k.max_running, k.max_per_group, k.paused, k.turn, k.running
FROM {schema}.jobyard_queue k WHERE k.name = $1

-- name: list_groups(now, queue, name after which to start (NULL: from the start; jobs without a group come first), limit,
-- cap) -> groups that have jobs, a limit or a pause: name, limit, paused, waiting, delayed, running; by name
SELECT * FROM {schema}.jobyard_list_groups(p_now => $1, p_queue => $2, p_after => $3, p_limit => $4, p_cap => $5)

-- name: list_line(queue, limit) -> groups with due jobs, front first, as `list_groups`
SELECT g.name, g.own_limit, g.paused, g.waiting, g.delayed, g.running FROM {schema}.jobyard_group g
WHERE g.queue = $1 AND g.waiting > 0 ORDER BY g.turn LIMIT $2

-- name: count_line(queue) -> number of groups with due jobs
SELECT count(*) FROM {schema}.jobyard_group g WHERE g.queue = $1 AND g.waiting > 0

-- name: load_group(queue, name) -> limit, paused, turn, waiting, running
SELECT g.own_limit, g.paused, g.turn, g.waiting, g.running FROM {schema}.jobyard_group g
WHERE g.queue = $1 AND g.name = $2

-- name: ages(now, number of groups, and of priorities in each, to examine)
-- -> per queue by name: since when its oldest due job is due, since when its oldest running job runs
SELECT * FROM {schema}.jobyard_ages(p_now => $1, p_most => $2)

-- name: count_jobs_ahead(queue, group, ord, cap) -> number of due jobs of the group before this ord, at most the cap
SELECT count(*) FROM (SELECT FROM {schema}.jobyard_ready r
  WHERE r.queue = $1 AND r.group_name = $2 AND r.ord < $3 LIMIT $4) s

-- name: is_in_line(queue, group, ord) -> whether the job is there
SELECT EXISTS (SELECT FROM {schema}.jobyard_ready r WHERE r.queue = $1 AND r.group_name = $2 AND r.ord = $3)

-- name: count_groups_ahead(queue, turn, group, cap) -> number of other open groups before this turn, at most the cap
SELECT count(*) FROM (SELECT FROM {schema}.jobyard_group g
  WHERE g.queue = $1 AND g.open AND g.turn < $2 AND g.name <> $3 LIMIT $4) s

-- name: running_ids(queue, group (NULL: any), limit) -> ids of running jobs, oldest first
SELECT j.id FROM {schema}.jobyard_lease l JOIN {schema}.jobyard_job j ON j.sequence = l.sequence
WHERE l.queue = $1 AND ($2::text IS NULL OR l.group_name = $2) ORDER BY l.sequence LIMIT $3
