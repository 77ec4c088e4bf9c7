-- in: now, how many. Expired documents.
DELETE FROM jobyard_record WHERE (collection, key) IN
  (SELECT collection, key FROM jobyard_record WHERE expires_at < 253402300799999 AND expires_at <= ? LIMIT ?)
