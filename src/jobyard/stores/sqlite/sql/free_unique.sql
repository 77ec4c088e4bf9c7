-- in: sequence of the job that ended. Only a key that this job holds while active is freed.
DELETE FROM jobyard_unique WHERE (queue, key, job_id) =
  (SELECT queue, unique_key, id FROM jobyard_job WHERE sequence = ?) AND until IS NULL
