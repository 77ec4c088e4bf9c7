-- in: queue, group, urgency, sequence of the last picked. Removes the head of the group up to it.
DELETE FROM jobyard_ready WHERE queue = ? AND group_name = ? AND (urgency, sequence) <= (?, ?)
