-- in: schedule, how many of the newest stay but one.
DELETE FROM jobyard_tick WHERE schedule = ?1
  AND at < (SELECT at FROM jobyard_tick WHERE schedule = ?1 ORDER BY at DESC LIMIT 1 OFFSET ?2)
