-- in: now, how many. Expired documents.
DELETE FROM jobyard_record WHERE (collection, key) IN
  (SELECT collection, key FROM jobyard_record WHERE expires_at <= ? LIMIT ?)
