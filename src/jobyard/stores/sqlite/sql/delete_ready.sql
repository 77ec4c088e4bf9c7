-- in: queue, group, urgency, sequence. Its rowcount says whether the job was due.
DELETE FROM jobyard_ready WHERE queue = ? AND group_name = ? AND urgency = ? AND sequence = ?
