-- in: used, deaths to add, erase the private payload (0/1), sequence.
UPDATE jobyard_job SET used = ?, deaths = deaths + ?,
  private_payload = CASE WHEN ? THEN NULL ELSE private_payload END, waiting_for = NULL WHERE sequence = ?
