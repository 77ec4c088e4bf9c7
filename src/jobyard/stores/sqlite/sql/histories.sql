-- Histories of jobs, the conditions of parked workflows, and ends to deliver.

-- name: insert_entry(sequence, scope, number, key, at, data, taken (0 for a signal, else NULL))
-- The row count is 0 if the key has an entry.
INSERT OR IGNORE INTO jobyard_history (sequence, scope, number, key, at, data, taken) VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: load_entry(sequence, scope, key) -> key, scope, data, number, at
SELECT key, scope, data, number, at FROM jobyard_history WHERE sequence = ? AND scope = ? AND key = ?

-- name: list_entries(id of the job, scope, after (a number), limit) -> key, scope, data, number, at; in order
SELECT h.key, h.scope, h.data, h.number, h.at
FROM jobyard_job j CROSS JOIN jobyard_history h ON h.sequence = j.sequence
WHERE j.id = ? AND h.scope = ? AND h.number > ? ORDER BY h.number LIMIT ?

-- name: count_entries(sequence, scope, limit) -> number of entries of the scope, up to the limit
SELECT count(*) FROM (SELECT 1 FROM jobyard_history WHERE sequence = ? AND scope = ? LIMIT ?)

-- name: count_signals(sequence, scope) -> number of signals that were not taken
SELECT count(*) FROM jobyard_history WHERE sequence = ? AND scope = ? AND taken = 0

-- name: next_signal(sequence, scope) -> number, data of the oldest signal that was not taken
SELECT number, data FROM jobyard_history WHERE sequence = ? AND scope = ? AND taken = 0 ORDER BY number LIMIT 1

-- name: take_signal(data that is left, sequence, scope, number)
UPDATE jobyard_history SET taken = 1, data = ? WHERE sequence = ? AND scope = ? AND number = ?

-- name: forget_taken(:sequence, :scope, :kept)
-- Of the signals that were taken, the last ones are kept.
DELETE FROM jobyard_history WHERE sequence = :sequence AND scope = :scope AND taken = 1 AND number <=
  (SELECT number FROM jobyard_history WHERE sequence = :sequence AND scope = :scope AND taken = 1
   ORDER BY number DESC LIMIT 1 OFFSET :kept)

-- name: delete_entry(sequence, scope, key)
DELETE FROM jobyard_history WHERE sequence = ? AND scope = ? AND key = ?

-- name: delete_entries_except(:sequence, :prefix)
-- Those of scopes with the prefix stay.
DELETE FROM jobyard_history WHERE sequence = :sequence AND substr(scope, 1, length(:prefix)) <> :prefix

-- name: delete_histories(JSON list of sequences)
DELETE FROM jobyard_history WHERE sequence IN (SELECT value FROM json_each(?))

-- name: replace_payload(payload, sequence)
UPDATE jobyard_job SET payload = ? WHERE sequence = ?

-- name: reset_deaths(JSON list of sequences)
UPDATE jobyard_job SET deaths = 0 WHERE sequence IN (SELECT value FROM json_each(?)) AND deaths > 0

-- name: add_job_flag(flag, sequence)
UPDATE jobyard_job SET flags = flags | ? WHERE sequence = ?

-- name: add_lease_flag(flag, sequence)
UPDATE jobyard_lease SET flags = flags | ? WHERE sequence = ?

-- name: load_extra(sequence, what) -> data of an extra of which a job has at most one
SELECT data FROM jobyard_extra WHERE sequence = ? AND what = ? AND number = 0

-- name: delete_extra(sequence, what)
DELETE FROM jobyard_extra WHERE sequence = ? AND what = ? AND number = 0

-- name: list_lease_extras(JSON list of sequences) -> sequence, what, data of parents and carried cancel requests
SELECT e.sequence, e.what, e.data FROM json_each(?) n CROSS JOIN jobyard_extra e ON e.sequence = n.value
WHERE e.what IN ('parent', 'cancel') AND e.number = 0

-- name: list_known_ids(JSON list of ids) -> those of existing jobs
SELECT n.value FROM json_each(?) n CROSS JOIN jobyard_job j ON j.id = n.value

-- name: insert_ended(job_id, state, sequence of the job, is_workflow, result, reason)
-- The first end of a job is kept.
INSERT OR IGNORE INTO jobyard_ended (job_id, state, parent, is_workflow, result, reason) VALUES
  (?, ?, (SELECT data FROM jobyard_extra WHERE sequence = ? AND what = 'parent' AND number = 0), ?, ?, ?)

-- name: list_ended_jobs(limit) -> job_id, state, parent, is_workflow, result, reason; oldest first
SELECT job_id, state, parent, is_workflow, result, reason FROM jobyard_ended ORDER BY number LIMIT ?

-- name: list_undelivered(JSON list of sequences) -> those of workflows that have ended badly, if that end is to be delivered
SELECT j.sequence FROM json_each(?) n CROSS JOIN jobyard_job j ON j.sequence = n.value
JOIN jobyard_ended e ON e.job_id = j.id WHERE e.is_workflow AND e.state <> 'COMPLETED'

-- name: delete_ended(JSON list of ids)
DELETE FROM jobyard_ended WHERE job_id IN (SELECT value FROM json_each(?))
