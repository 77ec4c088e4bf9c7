-- in: queue, key. out: job_id, until.
SELECT job_id, until FROM jobyard_unique WHERE queue = ? AND key = ?
