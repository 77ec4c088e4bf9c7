-- in: sequence, token. The fence: deletes and answers the lease only if the token holds.
DELETE FROM jobyard_lease WHERE sequence = ? AND token = ?
RETURNING queue, group_name, attempt, worker, started_at, flags, cancel
