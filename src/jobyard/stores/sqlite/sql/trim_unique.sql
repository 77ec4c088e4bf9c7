-- in: now, how many. Keys whose period is over.
DELETE FROM jobyard_unique WHERE (queue, key) IN
  (SELECT queue, key FROM jobyard_unique WHERE until < 253402300799999 AND until <= ? LIMIT ?)
